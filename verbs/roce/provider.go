package roce

import (
	"cmp"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/internal/soft"
	"github.com/tryst-rdma/tryst/verbs/roce/internal/udp"
)

// Name is the name of this provider.
const Name = "roce"

// Options configures a provider. The zero value gives the defaults.
type Options struct {
	// Senders is the number of sending sockets of a local address, each with its own
	// port; 0 means 4. More ports spread packets over more paths of a network.
	Senders int
	// NoOffload disables segmentation offload and receive coalescing, as on a kernel
	// without UDP_SEGMENT and UDP_GRO.
	NoOffload bool
	// Logger receives what an operator may want to change; nil means no log.
	Logger *slog.Logger
}

// Provider implements verbs.Provider. It has a device for each network interface with
// an IP address; an opened device stays until the interface disappears. Sockets belong
// to the provider: a device that is opened twice uses the same sockets.
type Provider struct {
	options Options
	sys     system
	log     *slog.Logger
	order   order

	unlisted atomic.Bool // the last listing of the interfaces has failed

	refreshMu sync.Mutex // serializes refresh, so that the last listing wins; taken before mu

	mu          sync.Mutex // guards the fields below; taken after a device's
	nics        map[int]*nic
	endpoints   map[netip.Addr]*endpoint
	openDevices int // number of opened devices
	stop        func()

	qpMu sync.RWMutex // guards the fields below; taken last
	qps  map[verbs.QPN]*qp
}

// New returns a provider. It opens no sockets before a device is opened.
func New(o Options) *Provider {
	var h host
	if o.NoOffload {
		h.options = append(h.options, udp.NoOffload())
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

// Devices implements verbs.Provider. It lists one device for each interface, named
// after it.
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
		p.onChange() // changes before the watch began are not reported
	}
	return d, nil
}

// open opens a known device. began reports whether it started the watch.
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
	there := "no network interface has an IP address"
	if len(names) > 0 {
		there = "the devices are " + strings.Join(names, ", ")
	}
	return nil, false, verbs.Errorf("open", name, verbs.ErrNotFound, "there is no %q: %s", name, there)
}

// deviceClosed releases the endpoints of a closed device.
func (p *Provider) deviceClosed(d *device, used []*endpoint) {
	p.mu.Lock()
	delete(d.nic.open, d)
	var ended []*endpoint
	for _, e := range used {
		if e.users--; e.users == 0 {
			ended = append(ended, e)
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
	for _, e := range ended {
		e.close() // without the lock, which receiveLoop may take
		p.mu.Lock()
		delete(p.endpoints, e.addr)
		p.mu.Unlock()
		close(e.removed)
	}
}

// endpoint returns the endpoint of a local address, and opens it if needed. While the
// previous one is being closed it holds the port, so wait for its end.
func (p *Provider) endpoint(addr netip.Addr) (*endpoint, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for e := p.endpoints[addr]; e != nil; e = p.endpoints[addr] {
		if e.users > 0 {
			e.users++
			return e, nil
		}
		p.mu.Unlock()
		<-e.removed
		p.mu.Lock()
	}
	e, err := openEndpoint(p, addr)
	if err != nil {
		return nil, err
	}
	e.users = 1
	p.endpoints[addr] = e
	return e, nil
}

// onChange is called when interfaces may have changed.
func (p *Provider) onChange() {
	err := p.refresh()
	if failed := err != nil; failed != p.unlisted.Swap(failed) && failed { // once until it works again
		p.log.Warn("roce: the network interfaces cannot be listed, so changes of them are not seen; check that this process may use netlink and read /sys", "reason", err)
	}
}

// refresh lists the interfaces and notifies opened devices of changes.
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
		if n != nil && n.name != deviceName(i.name) { // renamed: it is another device
			n.remove()
			n = nil
		}
		if n == nil {
			n = newNIC(i)
			p.nics[i.index] = n
		} else {
			n.update(i)
		}
		// An interface without addresses is no device. But if the device is open, it
		// stays with an empty GID table: the addresses may come back (link down and up,
		// DHCP renewal).
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

// register assigns a random number to a queue pair.
func (p *Provider) register(q *qp) {
	p.qpMu.Lock()
	defer p.qpMu.Unlock()
	for {
		// 0 and 1 are the management queue pairs, 0xffffff is multicast.
		q.number = verbs.QPN(2 + soft.Random32()%0xfffffd)
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

// find returns the queue pair with a number, or nil.
func (p *Provider) find(n verbs.QPN) *qp {
	p.qpMu.RLock()
	defer p.qpMu.RUnlock()
	return p.qps[n]
}
