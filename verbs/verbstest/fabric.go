package verbstest

import (
	crand "crypto/rand"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/tryst-rdma/tryst/verbs"
)

// Options configures a fabric. With the zero value each host has one device "mem0" with one
// port, and the wires have no latency, no loss and unlimited bandwidth.
type Options struct {
	// Seed makes loss, keys, addresses and queue pair numbers reproducible;
	// 0 means a random seed.
	Seed uint64
	// Devices lists the devices of each host.
	Devices []DeviceOptions
	// Latency, Bandwidth and Loss are the initial values of all wires: the time
	// from sender to receiver, bytes per second (0 means unlimited), and the
	// probability that a packet of the path MTU is lost, 0 to 1. Wires change them.
	Latency   time.Duration
	Bandwidth int64
	Loss      float64
	// PollTime is the duration of a poll that finds nothing. On virtual time it must
	// not be 0 if a goroutine polls in a loop: time would stand still.
	PollTime time.Duration
	// StaleCompletions keeps the completions of a closed queue pair in the completion
	// queue, as rxe does. The default drops them, as the libraries of NICs do.
	StaleCompletions bool
}

// DeviceOptions configures a device. Zero fields get the default in the comment.
type DeviceOptions struct {
	Name       string          // "mem" and its index in Options.Devices
	Ports      uint8           // 1
	Link       verbs.LinkLayer // Ethernet; of LinkTCP and LinkShared it has only the GID
	MTU        verbs.MTU       // active and largest: 4096
	MaxMessage uint32          // bytes: 1 GiB
	MaxInline  int             // bytes: 400; -1 for none
	Limits     verbs.Limits    // similar to those of rxe
	// NoWindows makes BindWindow fail with errors.ErrUnsupported. NoAtomics makes posts
	// of atomics fail with verbs.ErrInvalid. NoGoMemory clears DeviceInfo.GoMemory, and
	// has no other effect.
	NoWindows, NoAtomics, NoGoMemory bool
}

// Fabric is an in-memory network of hosts with RDMA devices. All methods of the fabric and
// its objects may be called from several goroutines at once.
type Fabric struct {
	clock
	options Options
	bug     bug

	// clock.mu guards the fields below.
	random *rand.Rand
	hosts  map[string]*Host
	names  []string // of the hosts, in order of creation
	gids   map[verbs.GID]*port
	lids   map[verbs.LID]*port
	free   *packet // list of packets for reuse
}

// NewFabric creates a fabric. On virtual time call it inside the synctest bubble.
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

// Host returns the host of that name, and creates it on first use.
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

// Provider returns the provider of a host: Host(host).Provider().
func (f *Fabric) Provider(host string) verbs.Provider { return f.Host(host).Provider() }

// Counts returns the number of open objects on all hosts. A test that closed everything
// gets zero.
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

// Close stops the fabric: no packet arrives and no timer fires any more. Calling it is
// optional.
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
	number int // from 1; part of its addresses
	nics   []*NIC
	sent   Sent
}

// Sent counts the work requests that the queue pairs of a host accepted.
type Sent struct {
	Sends, Writes, WriteImms, Reads, Atomics uint64
	Bytes                                    uint64 // of sends and writes
	Registrations                            uint64 // of memory regions
}

// Sent returns the counts so far, including those of killed processes.
func (h *Host) Sent() Sent {
	h.f.mu.Lock()
	defer h.f.mu.Unlock()
	return h.sent
}

// Name returns the name of the host.
func (h *Host) Name() string { return h.name }

// Provider returns a provider of the host's devices.
func (h *Host) Provider() verbs.Provider { return provider{h} }

// NIC returns the device of that name, or nil.
func (h *Host) NIC(name string) *NIC {
	for _, n := range h.nics {
		if n.name == name {
			return n
		}
	}
	return nil
}

// Kill ends the process on the host as SIGKILL does. All its objects are destroyed, peers
// are not informed, and the devices no longer access its memory. Later calls on the old
// objects fail with ErrDeviceGone, except Close, which does nothing. Devices that are
// opened after Kill belong to the next process.
func (h *Host) Kill() {
	h.f.enter()
	defer h.f.leave()
	for _, n := range h.nics {
		for d := range n.open {
			d.killLocked()
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
