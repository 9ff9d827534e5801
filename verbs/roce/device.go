package roce

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tryst-rdma/tryst/verbs"
)

// device implements verbs.Device: an opened nic.
//
// Lock order: device, flow, queue pair; then one of provider, endpoint, keys,
// completion queue and events. Of the latter, the provider comes before endpoint and
// events, and keys before a completion queue.
type device struct {
	provider *Provider
	nic      *nic
	name     string
	start    time.Time // origin of the machines' time
	keys     *keys
	async    asyncQueue
	counts   counters

	gone       atomic.Bool
	goneSignal chan struct{} // closed when gone is set
	done       chan struct{} // closed by Close

	mu        sync.Mutex // guards the fields below
	closed    bool
	waiting   waiter
	pds       map[*pd]struct{}
	cqs       map[*cq]struct{}
	qps       map[*qp]struct{}
	endpoints []*endpoint
	mrs       int
	windows   int
}

func newDevice(p *Provider, n *nic) *device {
	return &device{
		provider: p, nic: n, name: n.name, start: time.Now(), keys: newKeys(), async: asyncQueue{wake: make(chan struct{}, 1)},
		goneSignal: make(chan struct{}), done: make(chan struct{}),
		pds: make(map[*pd]struct{}), cqs: make(map[*cq]struct{}), qps: make(map[*qp]struct{}),
	}
}

// now returns the time of the machines.
func (d *device) now() time.Duration { return time.Since(d.start) }

func (d *device) goneError(op string) error {
	return verbs.Errorf(op, d.name, verbs.ErrDeviceGone, "its network interface is gone")
}

// usableLocked returns an error if the device is closed or its interface has
// disappeared.
func (d *device) usableLocked(op string) error {
	switch {
	case d.closed:
		return verbs.Errorf(op, d.name, verbs.ErrClosed, "the device is closed")
	case d.gone.Load():
		return d.goneError(op)
	}
	return nil
}

// markGone flushes all work requests after the interface has disappeared.
func (d *device) markGone() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.gone.Swap(true) {
		return
	}
	for q := range d.qps {
		q.mu.Lock()
		q.machine.enterError()
		q.mu.Unlock()
		q.kickWithFeedback() // queue pairs of other devices on the flow must not wait for it
	}
	for c := range d.cqs {
		c.dead.Store(true)
	}
	close(d.goneSignal)
}

// Info implements verbs.Device.
func (d *device) Info() verbs.DeviceInfo {
	d.provider.mu.Lock()
	defer d.provider.mu.Unlock()
	return d.nic.info()
}

// Port implements verbs.Device.
func (d *device) Port(number uint8) (info verbs.PortInfo, err error) {
	err = d.withNIC("query port", number, func(n *nic) { info = n.port() })
	return info, err
}

// GIDs implements verbs.Device.
func (d *device) GIDs(number uint8) (list []verbs.GIDEntry, err error) {
	err = d.withNIC("list GIDs", number, func(n *nic) { list = n.table() })
	return list, err
}

func (d *device) withNIC(op string, port uint8, f func(*nic)) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.usableLocked(op); err != nil {
		return err
	}
	if port != onlyPort {
		return verbs.Errorf(op, fmt.Sprintf("%s port %d", d.name, port), verbs.ErrNotFound, "the only port is %d", onlyPort)
	}
	d.provider.mu.Lock()
	defer d.provider.mu.Unlock()
	f(d.nic)
	return nil
}

// address returns an entry of the GID table.
func (d *device) address(index uint8) (netip.Addr, bool) {
	d.provider.mu.Lock()
	defer d.provider.mu.Unlock()
	if int(index) >= len(d.nic.gids) || !d.nic.gids[index].IsValid() {
		return netip.Addr{}, false
	}
	return d.nic.gids[index], true
}

// endpointLocked returns the endpoint of a local address. The device uses it until
// Close.
func (d *device) endpointLocked(addr netip.Addr) (*endpoint, error) {
	for _, e := range d.endpoints {
		if e.addr == addr {
			return e, nil
		}
	}
	e, err := d.provider.endpoint(addr)
	if err == nil {
		d.endpoints = append(d.endpoints, e)
	}
	return e, err
}

// AllocPD implements verbs.Device.
func (d *device) AllocPD() (verbs.PD, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.usableLocked("allocate PD"); err != nil {
		return nil, err
	}
	if len(d.pds) >= maxPDs {
		return nil, verbs.Errorf("allocate PD", d.name, verbs.ErrInvalid, "the device's limit of %d is reached", len(d.pds))
	}
	p := &pd{dev: d, domain: domain{keys: d.keys}}
	d.pds[p] = struct{}{}
	return p, nil
}

// CreateCQ implements verbs.Device.
func (d *device) CreateCQ(c verbs.CQConfig) (verbs.CQ, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	const op = "create CQ"
	if err := d.usableLocked(op); err != nil {
		return nil, err
	}
	switch {
	case c.Size < 1 || c.Size > maxCQE:
		return nil, verbs.Errorf(op, d.name, verbs.ErrInvalid, "size %d is not in the range of 1 to %d", c.Size, maxCQE)
	case len(d.cqs) >= maxCQs:
		return nil, verbs.Errorf(op, d.name, verbs.ErrInvalid, "the device's limit of %d is reached", len(d.cqs))
	}
	q := newCQ(d, c.Size)
	d.cqs[q] = struct{}{}
	return q, nil
}

// NextEvent implements verbs.Device.
func (d *device) NextEvent(ctx context.Context) (verbs.AsyncEvent, error) {
	d.mu.Lock()
	closed, began := d.closed, !d.closed && d.waiting.begin()
	d.mu.Unlock()
	switch {
	case closed:
		return verbs.AsyncEvent{}, verbs.Errorf("next event", d.name, verbs.ErrClosed, "the device is closed")
	case !began:
		return verbs.AsyncEvent{}, verbs.Errorf("next event", d.name, verbs.ErrBusy, "another goroutine waits")
	}
	e, err := d.nextEvent(ctx)
	d.mu.Lock()
	d.waiting.end()
	d.mu.Unlock()
	return e, err
}

func (d *device) nextEvent(ctx context.Context) (verbs.AsyncEvent, error) {
	for {
		if err := ctx.Err(); err != nil {
			return verbs.AsyncEvent{}, err
		}
		if e, ok := d.async.pop(); ok {
			return e, nil
		}
		if d.gone.Load() {
			return verbs.AsyncEvent{}, d.goneError("next event")
		}
		select {
		case <-d.async.wake:
		case <-d.goneSignal:
		case <-ctx.Done():
			return verbs.AsyncEvent{}, ctx.Err()
		case <-d.done:
			return verbs.AsyncEvent{}, verbs.Errorf("next event", d.name, verbs.ErrClosed, "the device was closed")
		}
	}
}

// Counts implements verbs.Device.
func (d *device) Counts() verbs.Counts {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.countsLocked()
}

func (d *device) countsLocked() verbs.Counts {
	return verbs.Counts{PDs: len(d.pds), MRs: d.mrs, CQs: len(d.cqs), QPs: len(d.qps), Windows: d.windows}
}

// Close implements verbs.Device.
func (d *device) Close() error {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return nil
	}
	if c := d.countsLocked(); c != (verbs.Counts{}) {
		d.mu.Unlock()
		return verbs.Errorf("close", d.name, verbs.ErrBusy, "still open: %d PDs, %d MRs, %d CQs, %d QPs, %d windows",
			c.PDs, c.MRs, c.CQs, c.QPs, c.Windows)
	}
	d.closed = true
	returned := d.waiting.returns()
	endpoints := d.endpoints
	d.endpoints = nil
	d.mu.Unlock()
	close(d.done)
	if returned != nil {
		<-returned
	}
	d.provider.deviceClosed(d, endpoints)
	return nil
}
