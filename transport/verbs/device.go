package verbstransport

import (
	"errors"
	"slices"
	"time"

	"github.com/tryst-rdma/tryst/internal/handshake"
	"github.com/tryst-rdma/tryst/transport/verbs/internal/regmem"
	"github.com/tryst-rdma/tryst/transport/verbs/internal/route"
	"github.com/tryst-rdma/tryst/verbs"
)

// How the transport goes on when its device does not (ARCHITECTURE.md section 6):
//
//	Use ────► port ─── event, or a failed query ───► deviceLost ───► closePort ───► Options.Lost
//	 ▲          │                                    peers suspend   links end,         │
//	 │          └── Use of a better device ────────► peers resume ─► objects closed     │
//	 └───────────────────────── the caller finds a device ◄─────────────────────────────┘
//
// Receives are in the ledger (delivery.Requester), which needs no device. Tensors stay
// readable without one, and are registered with the next one: the memory is the transport's.

// PortOptions name the device that a transport uses, with a port and an address.
type PortOptions struct {
	// Device is an open device. The transport closes it when it is lost, or when another
	// one takes its place; otherwise the caller closes it after Close.
	Device verbs.Device
	// Address is the entry of the port's GID table that is the source of all packets.
	Address verbs.GIDEntry
	// Again finds the address was in a GID table that has changed. When it is gone,
	// Again returns a substitute of the same type and scope, and same is false
	// (discovery.Again). Nil allows no substitute: the user has chosen the address.
	Again func(table []verbs.GIDEntry, was verbs.GIDEntry) (now verbs.GIDEntry, same bool, err error)
	// Path has the attributes of the queue pairs: port, MTU, timeouts, traffic class.
	Path verbs.Path
	// Asked says that the user has named the device. A device of RoCE in user space is used with
	// another one in user space only if one of the two was named.
	Asked bool
	// Addresses are those that peers can dial, as "host:port" (TCP); none for a process that
	// cannot be reached. Directory identifies the directory for sockets (shared memory):
	// processes that see the same one have the same number; 0 for none.
	Addresses []string
	Directory uint64
	// Rails is the number of queue pairs of a channel, 1 to 8; 1 when 0. Over TCP it is 2 at
	// least, since contents have queue pairs of their own. A channel has the smaller number of
	// both sides (PROTOCOL.md section 9).
	Rails int
}

// Use makes the transport use a device, in place of the present one if there is one. The
// present channels are then left, and made again over the new device. With an error nothing
// has changed, and the device is still the caller's.
func (t *RdmaRemoteRendezvous) Use(d PortOptions) error {
	next, err := openPort(&t.opts, t.memory, d)
	if err != nil {
		return err
	}
	t.changing.Lock()
	defer t.changing.Unlock()
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		return errors.Join(errTransportClosed, next.close())
	}
	was := t.ports[next.route]
	t.ports[next.route], t.lost[next.route] = next, nil
	t.mu.Unlock()
	var moved error
	if was != nil {
		moved = handshake.Changes(was.String(), next.String())
	}
	for _, p := range t.all() {
		p.deviceFound(next, moved)
	}
	t.devicesChanged()
	t.work.Go(func() { t.watchEvents(next) })
	if was != nil {
		t.work.Go(func() { t.closePort(was) })
	}
	return nil
}

// present returns the port of a route that is in use; nil while there is none.
func (t *RdmaRemoteRendezvous) present(of route.Route) *port {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ports[of]
}

// inUse returns the ports in use.
func (t *RdmaRemoteRendezvous) inUse() []*port {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.inUseLocked()
}

// inUseLocked is inUse for callers that hold mu.
func (t *RdmaRemoteRendezvous) inUseLocked() []*port {
	return slices.DeleteFunc(slices.Clone(t.ports[:]), func(p *port) bool { return p == nil })
}

// takePort returns the port of a route for one more link, which has to call port.links.done at
// its end. The error is why there is no port.
func (t *RdmaRemoteRendezvous) takePort(of route.Route) (*port, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	on := t.ports[of]
	if on == nil {
		return nil, t.lost[of]
	}
	on.links.add()
	return on, nil
}

// deviceLost ends every channel on a device and closes it with all its objects, since its
// removal waits for that. Receives take the fallback. Only the first call for a port has an
// effect.
func (t *RdmaRemoteRendezvous) deviceLost(p *port, err error) {
	t.changing.Lock()
	defer t.changing.Unlock()
	t.mu.Lock()
	if t.ports[p.route] != p || t.closed {
		t.mu.Unlock()
		return
	}
	t.ports[p.route], t.lost[p.route] = nil, err
	others := len(t.inUseLocked()) > 0
	t.mu.Unlock()
	t.devicesChanged()
	instead := t.fallback()
	if others {
		instead = "other devices where they reach the peer, and else over " + instead
	}
	t.opts.Logger.Warn("the "+deviceWords(p.route)+" is lost; check its driver and its cable; until there is one again tensors go over "+instead, "device", p.device.Info().Name, "reason", err)
	for _, at := range t.all() {
		at.deviceLost(p, err)
	}
	t.work.Go(func() {
		t.closePort(p)
		if t.opts.Lost != nil && p.route == route.Fabric {
			t.opts.Lost(err)
		}
	})
}

// closePort closes a device that is not used any more, when its last link has ended.
func (t *RdmaRemoteRendezvous) closePort(p *port) {
	p.links.Wait()
	t.logClose("device", errors.Join(p.close(), p.device.Close()))
}

// Device returns the name of the device of the fabric that is in use. With an error there is none with an address at
// present, and the error is why.
func (t *RdmaRemoteRendezvous) Device() (name string, err error) {
	t.mu.Lock()
	p, lost := t.ports[route.Fabric], t.lost[route.Fabric]
	t.mu.Unlock()
	if p == nil {
		return "", lost
	}
	return p.usable()
}

// DeviceStatus describes a device of a process.
type DeviceStatus struct {
	// Route is as in Connection.Route, and Name the device's name.
	Route, Name string
	// Err is why it cannot be used at present; nil if it can.
	Err error
}

// Devices returns the devices of this process, also those that are lost.
func (t *RdmaRemoteRendezvous) Devices() []DeviceStatus {
	t.mu.Lock()
	ports, lost := t.ports, t.lost
	t.mu.Unlock()
	var all []DeviceStatus
	for _, k := range route.Routes {
		d := DeviceStatus{Route: k.String()}
		switch p := ports[k]; {
		case p != nil:
			d.Name, d.Err = p.usable()
		case lost[k] == errNoTCP || lost[k] == errNoShared: //nolint:errorlint // never wrapped: it never had one
			continue
		default:
			d.Err = lost[k]
		}
		all = append(all, d)
	}
	return all
}

// usable returns the name of the device, or why the port cannot be used.
func (p *port) usable() (name string, err error) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if p.gone {
		return "", verbs.Errorf("use", p.String(), ErrNoAddress, "its address %v is gone", p.gid)
	}
	return p.device.Info().Name, nil
}

// Memory returns the counts of registered memory, of all devices together.
func (t *RdmaRemoteRendezvous) Memory() regmem.Stats { return t.memory.Stats(time.Now()) }
