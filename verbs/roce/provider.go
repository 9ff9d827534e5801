package roce

import (
	"cmp"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/roce/internal/udp"
)

// Name is the name of this provider.
const Name = "roce"

// Options configures a provider. The zero value is good.
type Options struct {
	// Senders is how many sending sockets a local address has, each with a port of
	// its own; 0 for 4. More ports spread the packets over more paths of a network.
	Senders int
	// Plain asks the kernel for no offload of segmentation, as if it had none.
	Plain bool
	// Logger is told what a person may want to change; none when nil.
	Logger *slog.Logger
}

// Provider has a device for each network interface with an IP address; one that is
// open stays while the interface does. It
// implements verbs.Provider. Its sockets belong to it, not to an opening: devices
// that are open twice share them.
type Provider struct {
	options Options
	sys     system
	log     *slog.Logger
	order   order

	refreshMu sync.Mutex // one listing of the interfaces at a time, so that the last one counts; taken before mu

	mu          sync.Mutex // guards what follows; taken after a device's
	nics        map[int]*nic
	endpoints   map[netip.Addr]*endpoint
	openDevices int // openings of devices
	stop        func()

	qpMu sync.RWMutex // guards what follows; taken last
	qps  map[verbs.QPN]*qp
}

// New returns a provider. Nothing is opened before a device is.
func New(o Options) *Provider {
	var h host
	if o.Plain {
		h.options = append(h.options, udp.Plain())
	}
	return newProvider(o, h)
}

func newProvider(o Options, sys system) *Provider {
	if o.Senders <= 0 {
		o.Senders = defaultSenders
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Provider{
		options: o, sys: sys, log: o.Logger,
		nics: make(map[int]*nic), endpoints: make(map[netip.Addr]*endpoint), qps: make(map[verbs.QPN]*qp),
	}
}

// Name implements verbs.Provider.
func (*Provider) Name() string { return Name }

// Devices implements verbs.Provider: one for each interface, named after it.
func (p *Provider) Devices() ([]verbs.DeviceInfo, error) {
	if err := p.refresh(); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	var list []verbs.DeviceInfo
	for _, n := range p.nics {
		list = append(list, n.info())
	}
	slices.SortFunc(list, func(a, b verbs.DeviceInfo) int { return cmp.Compare(a.Name, b.Name) })
	return list, nil
}

// Open implements verbs.Provider.
func (p *Provider) Open(name string) (verbs.Device, error) {
	if err := p.refresh(); err != nil {
		return nil, err
	}
	d, began, err := p.open(name)
	if err != nil {
		return nil, err
	}
	if began {
		p.onChange() // what changed before the watch began, nobody tells of
	}
	return d, nil
}

// open opens a device of those that are known, and reports whether the watch began
// with it.
func (p *Provider) open(name string) (d *device, began bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var names []string
	for _, n := range p.nics {
		if n.name != name {
			names = append(names, n.name)
			continue
		}
		if p.openDevices == 0 {
			stop, err := p.sys.watch(p.onChange)
			if err != nil {
				return nil, false, &verbs.Error{Op: "open", Object: name, Err: err}
			}
			p.stop, began = stop, true
		}
		p.openDevices++
		d := newDevice(p, n)
		n.open[d] = struct{}{}
		return d, began, nil
	}
	slices.Sort(names)
	there := "none is there: no network interface has an IP address"
	if len(names) > 0 {
		there = "there are " + strings.Join(names, ", ")
	}
	return nil, false, verbs.Errorf("open", name, verbs.ErrNotFound, "there is no %q: %s", name, there)
}

// closed is called when an opening has ended, with its stations.
func (p *Provider) deviceClosed(d *device, used []*endpoint) {
	p.mu.Lock()
	delete(d.nic.open, d)
	var ended []*endpoint
	for _, s := range used {
		if s.users--; s.users == 0 {
			ended = append(ended, s)
		}
	}
	p.openDevices--
	stop := p.stop
	if p.openDevices > 0 {
		stop = nil
	}
	p.mu.Unlock()
	if stop != nil {
		stop()
	}
	for _, s := range ended {
		s.close() // without the lock: what it waits for may take it
		p.mu.Lock()
		delete(p.endpoints, s.addr)
		p.mu.Unlock()
		close(s.removed)
	}
}

// station returns the sockets of a local address, and opens them where nobody has.
// Those that are being closed have ended before: they hold the port still.
func (p *Provider) endpoint(addr netip.Addr) (*endpoint, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for s := p.endpoints[addr]; s != nil; s = p.endpoints[addr] {
		if s.users > 0 {
			s.users++
			return s, nil
		}
		p.mu.Unlock()
		<-s.removed
		p.mu.Lock()
	}
	s, err := openEndpoint(p, addr)
	if err != nil {
		return nil, err
	}
	s.users = 1
	p.endpoints[addr] = s
	return s, nil
}

// changed is called when an interface may have changed.
func (p *Provider) onChange() {
	if err := p.refresh(); err != nil {
		p.log.Warn("roce: the network interfaces cannot be listed", "reason", err)
	}
}

// refresh looks at the interfaces and tells who has a device open what is new.
func (p *Provider) refresh() error {
	p.refreshMu.Lock()
	defer p.refreshMu.Unlock()
	list, err := p.sys.interfaces()
	if err != nil {
		return &verbs.Error{Op: "list devices", Err: fmt.Errorf("%w: the network interfaces cannot be listed: %w", verbs.ErrUnavailable, err)}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	there := make(map[int]bool)
	for _, i := range list {
		there[i.index] = true
		n := p.nics[i.index]
		if n != nil && n.name != deviceName(i.name) { // renamed: another device
			n.remove()
			n = nil
		}
		if n == nil {
			n = newNIC(i)
			p.nics[i.index] = n
		} else {
			n.update(i)
		}
		// One that has lost its addresses has an empty table until one is back (the link
		// was down and up, a lease was renewed); who has it open keeps it.
		if len(n.addrs) == 0 && len(n.open) == 0 {
			delete(p.nics, i.index)
		}
	}
	for index, n := range p.nics {
		if !there[index] {
			n.remove()
			delete(p.nics, index)
		}
	}
	return nil
}

// register gives a queue pair a number that is not to be guessed.
func (p *Provider) register(q *qp) {
	p.qpMu.Lock()
	defer p.qpMu.Unlock()
	for {
		// 0 and 1 are the management queue pairs, and the last one is the
		// multicast's.
		q.number = verbs.QPN(2 + random32()%0xfffffd)
		if p.qps[q.number] == nil {
			p.qps[q.number] = q
			return
		}
	}
}

func (p *Provider) unregister(q *qp) {
	p.qpMu.Lock()
	defer p.qpMu.Unlock()
	delete(p.qps, q.number)
}

// find is the queue pair of a number.
func (p *Provider) find(n verbs.QPN) *qp {
	p.qpMu.RLock()
	defer p.qpMu.RUnlock()
	return p.qps[n]
}
