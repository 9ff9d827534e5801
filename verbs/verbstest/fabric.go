package verbstest

import (
	crand "crypto/rand"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/tryst-rdma/tryst/verbs"
)

// Options say what a fabric is like. The zero value is fast, loses nothing, and
// has one device "mem0" with one port on each host.
type Options struct {
	// Seed makes loss, keys, addresses and queue pair numbers the same in
	// each run; 0 for other ones each time.
	Seed uint64
	// Devices are those of each host.
	Devices []DeviceOptions
	// Latency is how long a packet travels, Bandwidth in bytes per second how
	// fast a wire takes them (0 for at once), Loss the share of packets, of
	// the path's MTU, that get lost (0 to 1). All can be changed per wire.
	Latency   time.Duration
	Bandwidth int64
	Loss      float64
	// PollTime is what a poll takes that finds nothing. On virtual time it
	// must not be 0 where somebody polls until something happens.
	PollTime time.Duration
	// StaleCompletions leaves the completions of a closed queue pair in their
	// queue, as rxe does. Else they are lost, as with a NIC.
	StaleCompletions bool
}

// DeviceOptions say what a device is like. What is zero gets a default.
type DeviceOptions struct {
	Name       string // mem0, mem1 and so on, by its place
	Ports      uint8  // 1
	Link       verbs.LinkLayer
	MTU        verbs.MTU // active and largest: 4096
	MaxMessage uint32    // bytes: 1 GiB
	MaxInline  int       // bytes: 400; -1 for none
	Limits     verbs.Limits
	// NoWindows makes BindWindow answer errors.ErrUnsupported, NoAtomics the
	// atomics, and NoGoMemory says so in DeviceInfo, no more.
	NoWindows, NoAtomics, NoGoMemory bool
}

// Fabric is a network of hosts with RDMA devices, in memory. Its methods and
// those of all that comes from it may be called from any goroutine.
type Fabric struct {
	clock
	options Options
	planted mistake

	// What follows is guarded by clock.mu.
	random *rand.Rand
	hosts  map[string]*Host
	names  []string // of the hosts, in the order in which they were made
	gids   map[verbs.GID]*port
	lids   map[verbs.LID]*port
	free   *packet // list of packets for use
}

// NewFabric makes a fabric without hosts; they are made when they are named.
func NewFabric(o Options) *Fabric {
	if len(o.Devices) == 0 {
		o.Devices = []DeviceOptions{{}}
	}
	seed := o.Seed
	if seed == 0 {
		var b [8]byte
		_, _ = crand.Read(b[:]) // never fails (crypto/rand)
		seed = binary.LittleEndian.Uint64(b[:])
	}
	f := &Fabric{
		options: o, random: rand.New(rand.NewPCG(seed, 0)), //nolint:gosec // reproducible on purpose
		hosts: make(map[string]*Host), gids: make(map[verbs.GID]*port), lids: make(map[verbs.LID]*port),
	}
	f.start = time.Now()
	f.timer = time.AfterFunc(time.Hour, f.tick)
	f.timer.Stop()
	return f
}

// Host is the host of that name, made at its first mention.
func (f *Fabric) Host(name string) *Host {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.hostLocked(name)
}

func (f *Fabric) hostLocked(name string) *Host {
	h := f.hosts[name]
	if h == nil {
		h = &Host{f: f, name: name, number: len(f.names) + 1}
		f.hosts[name] = h
		f.names = append(f.names, name)
		for i, o := range f.options.Devices {
			h.nics = append(h.nics, newNIC(h, i, o))
		}
	}
	return h
}

// Provider is what a process on that host has: Host(name).Provider().
func (f *Fabric) Provider(host string) verbs.Provider { return f.Host(host).Provider() }

// Counts sums up what is open on all hosts: zero when a test has closed all.
func (f *Fabric) Counts() verbs.Counts {
	f.mu.Lock()
	defer f.mu.Unlock()
	var sum verbs.Counts
	for _, h := range f.hosts {
		for _, n := range h.nics {
			for d := range n.open {
				c := d.countsLocked()
				sum.PDs += c.PDs
				sum.MRs += c.MRs
				sum.CQs += c.CQs
				sum.QPs += c.QPs
				sum.Windows += c.Windows
			}
		}
	}
	return sum
}

// Close ends the fabric: nothing happens on it any more, and its timer is
// stopped. It is not an error to leave that out.
func (f *Fabric) Close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	f.timer.Stop()
}

// Host is a machine on the fabric.
type Host struct {
	f      *Fabric
	name   string
	number int // from 1: part of its addresses
	nics   []*NIC
	sent   Sent
}

// Sent counts the work requests that the queue pairs of a host have taken.
type Sent struct {
	Sends, Writes, WriteImms, Reads, Atomics uint64
	Bytes                                    uint64 // of sends and writes
	Registrations                            uint64 // memory regions made
}

// Sent returns the counts so far. Those of killed processes are among them.
func (h *Host) Sent() Sent {
	h.f.mu.Lock()
	defer h.f.mu.Unlock()
	return h.sent
}

// Name is its name.
func (h *Host) Name() string { return h.name }

// Provider gives the devices of the host.
func (h *Host) Provider() verbs.Provider { return provider{h} }

// NIC is the device of that name; nil when there is none.
func (h *Host) NIC(name string) *NIC {
	for _, n := range h.nics {
		if n.name == name {
			return n
		}
	}
	return nil
}

// Kill ends the process on the host as SIGKILL does: all that it had open
// vanishes without a word, and nothing touches its memory any more. What it
// calls afterwards fails with ErrDeviceGone, but for Close, which does nothing.
// What is opened after Kill belongs to the next process.
func (h *Host) Kill() {
	h.f.enter()
	defer h.f.leave()
	for _, n := range h.nics {
		for d := range n.open {
			d.vanishLocked()
		}
	}
}

// provider implements verbs.Provider.
type provider struct{ host *Host }

// Name implements verbs.Provider.
func (p provider) Name() string { return "memory" }

// Devices implements verbs.Provider.
func (p provider) Devices() ([]verbs.DeviceInfo, error) {
	f := p.host.f
	f.mu.Lock()
	defer f.mu.Unlock()
	var list []verbs.DeviceInfo
	for _, n := range p.host.nics {
		if !n.removed {
			list = append(list, n.info())
		}
	}
	return list, nil
}

// Open implements verbs.Provider.
func (p provider) Open(name string) (verbs.Device, error) {
	f := p.host.f
	f.mu.Lock()
	defer f.mu.Unlock()
	var there []string
	for _, n := range p.host.nics {
		if n.removed {
			continue
		}
		if n.name == name {
			d := newDevice(n)
			n.open[d] = struct{}{}
			return d, nil
		}
		there = append(there, n.name)
	}
	return nil, verbs.Errorf("open", name, verbs.ErrNotFound, "host %s has no device %q, it has %s", p.host.name, name, fmt.Sprint(there))
}
