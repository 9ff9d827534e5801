package roce

import (
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/internal/rocewire"
	"github.com/tryst-rdma/tryst/verbs/roce/internal/udp"
	"github.com/tryst-rdma/tryst/verbs/verbstest"
)

// fabric is a network in memory, on the virtual time of testing/synctest or on real
// time. Datagrams arrive in order, after a latency, at the bandwidth of the receiver's
// link, and are dropped if the socket's buffer is full.
type fabric struct {
	latency   time.Duration
	bandwidth int // bytes a second that a host receives; 0: no limit
	buffer    int // of a receiving socket, in bytes
	loss      float64
	segments  int  // maximum of a message; 0: that of package udp
	firstOnly bool // the peers drop all segments of a super-packet but the first
	// see is called for each packet that is sent, before it is lost or delivered.
	see func(from, to netip.AddrPort, segment int, b []byte)
	// class is called for each message and returns the traffic class that it arrives
	// with.
	class func(from netip.AddrPort, m *udp.Message) uint8
	// corrupt is the share of packets in which a bit is flipped.
	corrupt float64

	mu        sync.Mutex // guards the fields below
	random    *rand.Rand
	receivers map[netip.AddrPort]*memoryReceiver
	hosts     []*memoryHost
	nextPort  uint16
	corrupted int // packets with a flipped bit that the ICRC covers
}

// icrcFree is the byte of a packet that switches may change (FECN, BECN) and that the
// ICRC does not cover.
const icrcFree = 4

func newFabric() *fabric {
	return &fabric{
		latency: 10 * time.Microsecond, buffer: 208 << 10, random: rand.New(rand.NewPCG(1, 1)), //nolint:gosec // a test's
		receivers: make(map[netip.AddrPort]*memoryReceiver), nextPort: 40000,
	}
}

// memoryHost implements system.
type memoryHost struct {
	f       *fabric
	ifs     []netif
	changed []func()
}

// host returns a host with an interface eth0 that has these addresses.
func (f *fabric) host(addrs ...string) *memoryHost {
	h := &memoryHost{f: f}
	n := netif{index: 2, name: "eth0", mtu: 9000, up: true, mac: net.HardwareAddr{2, 0, 0, 0, 0, byte(len(f.hosts) + 1)}}
	for _, a := range addrs {
		n.addrs = append(n.addrs, netip.MustParseAddr(a))
	}
	h.ifs = []netif{n}
	f.hosts = append(f.hosts, h)
	return h
}

// change changes the host's interfaces and notifies the watcher.
func (h *memoryHost) change(do func(ifs []netif) []netif) {
	h.f.mu.Lock()
	h.ifs = do(slices.Clone(h.ifs))
	reported := slices.Clone(h.changed)
	h.f.mu.Unlock()
	for _, changed := range reported {
		changed()
	}
}

func (h *memoryHost) interfaces() ([]netif, error) {
	h.f.mu.Lock()
	defer h.f.mu.Unlock()
	return slices.Clone(h.ifs), nil
}

func (h *memoryHost) watch(changed func()) (stop func(), err error) {
	h.f.mu.Lock()
	defer h.f.mu.Unlock()
	h.changed = append(h.changed, changed)
	return func() {
		h.f.mu.Lock()
		defer h.f.mu.Unlock()
		h.changed = nil
	}, nil
}

// upLocked reports whether an address is on an interface that is up.
func (f *fabric) upLocked(a netip.Addr) bool {
	for _, h := range f.hosts {
		for _, n := range h.ifs {
			if n.up && slices.Contains(n.addrs, a) {
				return true
			}
		}
	}
	return false
}

func (h *memoryHost) listen(addr netip.Addr) (receiver, error) {
	f := h.f
	f.mu.Lock()
	defer f.mu.Unlock()
	at := netip.AddrPortFrom(addr, rocewire.Port)
	for f.receivers[at] != nil {
		f.nextPort++
		at = netip.AddrPortFrom(addr, f.nextPort)
	}
	r := &memoryReceiver{f: f, at: at, wake: make(chan struct{}, 1), done: make(chan struct{})}
	f.receivers[at] = r
	return r, nil
}

func (h *memoryHost) sender(addr netip.Addr) (sender, error) {
	h.f.mu.Lock()
	defer h.f.mu.Unlock()
	h.f.nextPort++
	return &memorySender{f: h.f, at: netip.AddrPortFrom(addr, h.f.nextPort)}, nil
}

// memoryReceiver implements receiver.
type memoryReceiver struct {
	f    *fabric
	at   netip.AddrPort
	wake chan struct{}
	done chan struct{}

	drops atomic.Uint64 // datagrams that did not fit

	// guarded by the fabric's lock
	queue []arriving
	full  int       // bytes in the queue and on the link
	free  time.Time // when the link has transmitted everything
	lent  []udp.Datagram
}

type arriving struct {
	at time.Time
	d  udp.Datagram
}

func (r *memoryReceiver) Addr() netip.AddrPort { return r.at }
func (r *memoryReceiver) Buffer() int          { return r.f.buffer }
func (r *memoryReceiver) Missing() []string    { return nil }
func (r *memoryReceiver) PortTaken() string    { return "" }
func (r *memoryReceiver) Overflowed() uint64   { return r.drops.Load() }

func (r *memoryReceiver) Close() error {
	r.f.mu.Lock()
	delete(r.f.receivers, r.at)
	r.f.mu.Unlock()
	close(r.done)
	return nil
}

func (r *memoryReceiver) Receive(idle func()) ([]udp.Datagram, error) {
	for {
		select {
		case <-r.done:
			return nil, net.ErrClosed
		default:
		}
		r.f.mu.Lock()
		var wait time.Duration
		if len(r.queue) > 0 {
			if wait = time.Until(r.queue[0].at); wait <= 0 {
				d := r.queue[0].d
				r.queue = r.queue[1:]
				r.full -= len(d.Data)
				r.lent = append(r.lent[:0], d)
				r.f.mu.Unlock()
				return r.lent, nil
			}
		}
		r.f.mu.Unlock()
		idle()
		var due <-chan time.Time
		if wait > 0 {
			due = time.After(wait)
		}
		select {
		case <-due:
		case <-r.wake:
		case <-r.done:
		}
	}
}

// deliverLocked delivers a datagram.
func (r *memoryReceiver) deliverLocked(d udp.Datagram) {
	if r.full > r.f.buffer { // like Linux, accept a datagram that begins below the limit (__udp_enqueue_schedule_skb)
		r.drops.Add(1)
		return
	}
	at := time.Now().Add(r.f.latency)
	if bw := r.f.bandwidth; bw > 0 {
		if at.Before(r.free) {
			at = r.free
		}
		at = at.Add(time.Duration(len(d.Data)) * time.Second / time.Duration(bw))
		r.free = at
	}
	r.full += len(d.Data)
	r.queue = append(r.queue, arriving{at, d})
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// inject delivers a datagram from any address.
func (f *fabric) inject(from, to netip.AddrPort, b []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r := f.receivers[to]; r != nil {
		r.deliverLocked(udp.Datagram{Data: b, Segment: len(b), From: from})
	}
}

// memorySender implements sender.
type memorySender struct {
	f  *fabric
	at netip.AddrPort
}

func (s *memorySender) Addr() netip.AddrPort { return s.at }
func (s *memorySender) Missing() []string    { return nil }
func (s *memorySender) Close() error         { return nil }

func (s *memorySender) MaxSegments(_ *udp.Destination, segment int) int {
	most := maxBatch
	if s.f.segments > 0 {
		most = s.f.segments
	}
	return max(1, min(most, maxSuperPacket/segment))
}

// Send delivers whole super-packets, as UDP_GRO would, without lost segments.
func (s *memorySender) Send(msgs []udp.Message) (int, error) {
	f := s.f
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range msgs {
		m, class := &msgs[i], msgs[i].TOS
		if f.class != nil {
			class = f.class(s.at, m)
		}
		var data []byte
		for _, p := range m.Buffers {
			data = append(data, p...)
		}
		to := m.To.Addr()
		r := f.receivers[to]
		deliver := func(run []byte) {
			if len(run) > 0 && r != nil && f.upLocked(s.at.Addr()) && f.upLocked(to.Addr()) {
				r.deliverLocked(udp.Datagram{Data: run, Segment: min(m.Segment, len(run)), From: s.at, ECN: class & ecnMask})
			}
		}
		begin := 0
		for at, i := 0, 0; at < len(data); i++ {
			end := min(at+m.Segment, len(data))
			if f.see != nil {
				f.see(s.at, to, i, data[at:end])
			}
			if f.corrupt > 0 && f.random.Float64() < f.corrupt {
				bit := f.random.IntN(8 * (end - at))
				if data[at+bit/8] ^= 1 << (bit % 8); bit/8 != icrcFree {
					f.corrupted++
				}
			}
			if f.random.Float64() < f.loss || f.firstOnly && i > 0 {
				deliver(data[begin:at])
				begin = end
			}
			at = end
		}
		deliver(data[begin:])
	}
	return len(msgs), nil
}

// Addresses of the two hosts of a pair.
const (
	hostA = "10.0.0.1"
	hostB = "10.0.0.2"
)

// ends returns two hosts on a fabric, each with a provider.
func (f *fabric) ends() (a, b verbstest.End) {
	list := [2]verbstest.End{}
	for i, addr := range []string{hostA, hostB} {
		list[i] = verbstest.End{Provider: newProvider(Options{}, f.host(addr)), Device: "roce-eth0", Port: onlyPort}
	}
	return list[0], list[1]
}

// TestMemorySuite: the provider passes its suite on virtual time, on several networks.
func TestMemorySuite(t *testing.T) {
	for _, c := range []struct {
		name string
		make func(*fabric)
	}{
		{name: "Clean", make: func(*fabric) {}},
		{name: "Loss", make: func(f *fabric) { f.loss = 0.01 }},
		{name: "Corruption", make: func(f *fabric) { f.corrupt = 0.01 }},
		{name: "SmallPackets", make: func(f *fabric) { f.segments = 1; f.bandwidth = 1 << 30 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			hosts := make(map[verbstest.End]*memoryHost)
			verbstest.Run(t, verbstest.Env{
				Virtual: true,
				Ends: func(testing.TB) (a, b verbstest.End) {
					f := newFabric()
					c.make(f)
					a, b = f.ends()
					clear(hosts)
					hosts[a], hosts[b] = f.hosts[0], f.hosts[1]
					return a, b
				},
				SetPort: func(_ testing.TB, e verbstest.End, up bool) {
					hosts[e].change(func(ifs []netif) []netif { ifs[0].up = up; return ifs })
				},
				Unsupported: map[verbstest.Feature]string{verbstest.MaxRegion: unsupported[verbstest.MaxRegion]},
			})
		})
	}
}
