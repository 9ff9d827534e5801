package verbstransport

import (
	"errors"
	"time"

	"github.com/tryst-rdma/tryst/transport/verbs/internal/regmem"
	"github.com/tryst-rdma/tryst/transport/verbs/internal/route"
	"github.com/tryst-rdma/tryst/verbs"
)

// The events of the device in use, and the attributes that are read from it.

// withPort refreshes the port and runs f, which makes or connects a link. The attributes do
// not change while f runs. If the port cannot be queried, withPort checks whether the device
// is gone: not every device reports that by an event.
func (t *RdmaRemoteRendezvous) withPort(p *port, f func() error) error {
	if err := t.refresh(p); err != nil {
		if !errors.Is(err, errInactive) && !errors.Is(err, ErrNoAddress) {
			t.checkDevice(p)
		}
		return err
	}
	p.mu.RLock()
	defer p.mu.RUnlock()
	return f()
}

// sweep releases idle memory, and closes channels whose quarantined memory exceeds its limits. When
// it is called late because the process was stopped, it waits for the next time: messages that free
// memory may have arrived and wait to be read.
func (t *RdmaRemoteRendezvous) sweep(late time.Duration) (more bool) {
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		return false
	}
	t.work.add() // Close waits for it
	t.mu.Unlock()
	defer t.work.done()
	if late > lateTimer {
		return true
	}
	now := time.Now()
	more, err := t.memory.Sweep(now)
	t.logClose("memory region", err)
	for _, o := range t.memory.Overdue(now) {
		t.closeAccount(o)
	}
	return more
}

// closeAccount closes the channel that an account belongs to.
func (t *RdmaRemoteRendezvous) closeAccount(o regmem.Overdue) {
	for _, p := range t.all() {
		for _, l := range p.existing() {
			if l.ownsAccount(o.Account) {
				l.bye(o.Reason)
			}
		}
	}
}

// watchEvents handles the asynchronous events of the device. A device that is being removed
// may report only a change of its GID table, so each event makes watchEvents query the
// device (ARCHITECTURE.md section 6). The kernel waits for the removal until every object of
// the device is released.
func (t *RdmaRemoteRendezvous) watchEvents(p *port) {
	name := p.device.Info().Name
	for {
		e, err := p.device.NextEvent(t.base)
		if err != nil {
			if t.base.Err() == nil && !errors.Is(err, verbs.ErrClosed) {
				t.deviceLost(p, err)
			}
			return
		}
		t.opts.Logger.Info("event of the device", "device", name, "event", e.Kind.String(), "port", e.Port)
		switch e.Kind {
		case verbs.EventQPFatal, verbs.EventQPRequest, verbs.EventQPAccess, verbs.EventQPProtocol:
			t.qpEvent(p, e)
		case verbs.EventDeviceFatal:
			t.deviceLost(p, verbs.Errorf("use", name, verbs.ErrDeviceGone, "%v", e.Kind))
			return
		}
		if !t.checkDevice(p) {
			return
		}
	}
}

// qpEvent passes an event of a queue pair of a device to its link.
func (t *RdmaRemoteRendezvous) qpEvent(on *port, e verbs.AsyncEvent) {
	for _, p := range t.all() {
		for _, l := range p.existing() {
			if l.port == on && l.ownsQP(e.QPN) {
				l.qpEvent(e)
				return
			}
		}
	}
}

// refresh refreshes the port and logs a change.
func (t *RdmaRemoteRendezvous) refresh(p *port) error {
	changed, err := p.refresh()
	if changed && len(t.opts.Fixed) > 0 {
		t.work.Go(t.devicesChanged) // the caller may hold the lock of the port
	}
	switch {
	case !changed:
	case err == nil:
		gid, path := p.address()
		t.opts.Logger.Info("the port is as follows now; new channels use it", "port", p.String(), "gid", gid.String(), "gid_index", path.SGIDIndex, "mtu", int(path.MTU))
	case errors.Is(err, errInactive):
		t.opts.Logger.Warn("the port is down; check the cable and the interface; until it is active again new channels wait, and tensors without one go over "+t.fallback(), "port", p.String(), "reason", err)
	case errors.Is(err, ErrNoAddress):
		t.opts.Logger.Warn("the address of the port is gone; until the interface has one again tensors go over "+t.fallback(), "port", p.String(), "reason", err)
		if t.opts.Lost != nil && p.route == route.Fabric {
			t.opts.Lost(err)
		}
	}
	return err
}

// checkDevice refreshes the port and ends the channels that cannot go on. It returns false
// when the device is lost.
func (t *RdmaRemoteRendezvous) checkDevice(p *port) bool {
	switch err := t.refresh(p); {
	case errors.Is(err, errInactive):
		return true // channels go on if the port is active again before their retries run out
	case errors.Is(err, ErrNoAddress):
		for _, at := range t.all() { // responses to the old address do not reach this host
			at.leaveAll(p, err)
		}
		return true
	case err != nil:
		t.deviceLost(p, err)
		return false
	}
	for _, at := range t.all() {
		gid := at.route(p.route).checkAddress(p)
		for _, l := range at.existing() {
			if from := l.own.Rails[0].GID; l.port == p && from != gid {
				why := verbs.Errorf("use", p.String(), ErrNoAddress, "its address %v is gone, and %v is used instead", from, gid)
				l.leave(why)
				l.route.offerGone(l, why)
			}
		}
		at.connectNow()
	}
	return true
}
