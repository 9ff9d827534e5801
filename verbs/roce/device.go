package roce

import (
	"net/netip"
	"time"

	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/internal/soft"
)

// device implements verbs.Device: an opened nic.
//
// Lock order: Device.Mu, flow, queue pair; then one of provider, endpoint, keys,
// completion queue and events. Of the latter, the provider comes before endpoint and
// events, and keys before a completion queue.
type device struct {
	soft.Device
	provider *Provider
	nic      *nic
	start    time.Time // origin of the machines' time
	counts   counters

	// Device.Mu guards the fields below.
	qps       map[*qp]struct{}
	endpoints []*endpoint
}

func newDevice(p *Provider, n *nic) *device {
	d := &device{provider: p, nic: n, start: time.Now(), qps: make(map[*qp]struct{})}
	d.Init(n.name, limits(), soft.Hooks{})
	return d
}

// now returns the time of the machines.
func (d *device) now() time.Duration { return time.Since(d.start) }

// markGone flushes all work requests after the interface has disappeared.
func (d *device) markGone() {
	d.Mu.Lock()
	defer d.Mu.Unlock()
	if !d.MarkGoneLocked("its network interface is gone") {
		return
	}
	for q := range d.qps {
		q.mu.Lock()
		q.machine.enterError()
		q.mu.Unlock()
		q.kickWithFeedback() // queue pairs of other devices on the flow must not wait for it
	}
	d.SignalGoneLocked()
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
	d.Mu.Lock()
	defer d.Mu.Unlock()
	if err := d.CheckPortLocked(op, port); err != nil {
		return err
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

// Close implements verbs.Device.
func (d *device) Close() error {
	ended, err := d.End()
	if !ended {
		return err
	}
	d.Mu.Lock()
	endpoints := d.endpoints
	d.endpoints = nil
	d.Mu.Unlock()
	d.provider.deviceClosed(d, endpoints)
	return nil
}
