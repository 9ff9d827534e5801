package verbstransport

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/transport/verbs/internal/handshake"
	"github.com/tryst-rdma/tryst/transport/verbs/internal/regmem"
	"github.com/tryst-rdma/tryst/verbs"
)

// port is the port of the device that all peers share: its protection domain, its registered
// memory, and the address that packets are sent from.
type port struct {
	device     verbs.Device
	pd         verbs.PD
	memory     *regmem.Memory
	configured verbs.GIDEntry  // the address when the transport was started
	mtu        verbs.MTU       // upper bound of the path MTU
	self       handshake.Offer // the part that all offers share

	// mu guards the attributes that refresh updates. withPort holds it, shared, while a
	// link is made or connected.
	mu   sync.RWMutex
	path verbs.Path
	gid  verbs.GID // the address in use; its index in the GID table is path.SGIDIndex
	lid  verbs.LID
	gone bool // the GID table did not have the address at the last refresh

	replacement func([]verbs.GIDEntry, verbs.GIDEntry) (verbs.GIDEntry, bool, error)
	refreshing  sync.Mutex // serialises refresh, so that the last result wins
}

// Why a port cannot be used for now although its device works.
var (
	errInactive  = errors.New("the port is not active")
	errNoAddress = errors.New("the port has lost its address")
)

func openPort(o *Options) (*port, error) {
	info, err := o.Device.Port(o.Path.Port)
	if err != nil {
		return nil, err
	}
	if most, message := info.MaxMessage, o.messageSize(); int64(most) < int64(message) {
		return nil, status.Errorf(status.InvalidArgument, "%s port %d supports messages of at most %d bytes, and those of a channel have up to %d: lower --eager-limit, now %d bytes",
			o.Device.Info().Name, o.Path.Port, most, message, o.EagerLimit)
	}
	p := &port{device: o.Device, path: o.Path, configured: o.Address, replacement: o.Again, gid: o.Address.GID, mtu: o.Path.MTU, lid: info.LID}
	p.path.SGIDIndex = uint8(o.Address.Index) //nolint:gosec // ibv_ah_attr has 8 bits; discovery refuses more
	p.path.Access = verbs.AccessLocalWrite | verbs.AccessRemoteWrite
	if p.mtu == 0 {
		p.mtu = info.ActiveMTU
	}
	p.path.MTU = p.mtu
	if p.path.MinRNRTimer == 0 {
		p.path.MinRNRTimer = verbs.DefaultMinRNRTimer
	}
	if p.pd, err = o.Device.AllocPD(); err != nil {
		return nil, err
	}
	o.Memory.Device = o.Device.Info()
	if p.memory, err = regmem.New(p.pd, o.Memory); err != nil {
		return nil, errors.Join(err, p.pd.Close())
	}
	udp, err := p.udpEndpoint()
	if err != nil {
		return nil, errors.Join(err, p.close())
	}
	message := o.messageSize()
	p.self = handshake.Offer{
		Task: o.Task, Incarnation: o.Self.Incarnation, Version: handshake.Version, Host: o.Host,
		Link: info.Link, GIDType: o.Address.Type,
		Window: uint32(o.Window), ReceiveSize: uint32(message), EagerLimit: uint32(o.EagerLimit), //nolint:gosec // limits
		MaxMessage: info.MaxMessage,
		Rails:      []handshake.Rail{{Endpoint: verbs.Endpoint{GID: p.gid, LID: p.lid, PSN: verbs.RandomPSN(), UDP: udp}, MTU: p.path.MTU}},
	}
	return p, nil
}

// udpEndpoint returns the UDP endpoint of a user-space device, which decides which peers it
// can reach (handshake.Compatible). It is zero for a kernel device. A queue pair in INIT has it.
func (p *port) udpEndpoint() (udp verbs.UDPEndpoint, err error) {
	if !p.device.Info().GoMemory {
		return udp, nil
	}
	cq, err := p.device.CreateCQ(verbs.CQConfig{Size: 1})
	if err != nil {
		return udp, err
	}
	defer func() { err = errors.Join(err, cq.Close()) }()
	qp, err := p.pd.CreateQP(verbs.QPConfig{SendCQ: cq, RecvCQ: cq, MaxSend: 1})
	if err != nil {
		return udp, err
	}
	defer func() { err = errors.Join(err, qp.Close()) }()
	if err := p.path.Init(qp); err != nil {
		return udp, err
	}
	return qp.Endpoint().UDP, nil
}

func (p *port) close() error { return errors.Join(p.memory.Close(), p.pd.Close()) }

func (p *port) String() string { return fmt.Sprintf("%s port %d", p.device.Info().Name, p.path.Port) }

// refresh reads the attributes that may change while the device is open: the index of the
// address in the GID table, the path MTU, the LID. An address that was removed and added
// again gets another index while a queue pair holds the old entry, and the old index may
// then belong to another address. The error is errInactive, errNoAddress, or an error of the
// device. changed reports whether the result differs from the last one.
func (p *port) refresh() (changed bool, err error) {
	p.refreshing.Lock()
	defer p.refreshing.Unlock()
	number := p.path.Port // never changes
	info, err := p.device.Port(number)
	if err != nil {
		return true, err
	}
	if info.State != verbs.PortActive && info.State != verbs.PortActiveDefer {
		return false, verbs.Errorf("use", p.String(), errInactive, "the port is %v", info.State)
	}
	table, err := p.device.GIDs(number)
	if err != nil {
		return true, err
	}
	path := p.path // only refresh changes it
	path.MTU = min(p.mtu, info.ActiveMTU)
	gid, index, has := p.chooseAddress(table)
	gone := index < 0
	if gone {
		err = verbs.Errorf("use", p.String(), errNoAddress,
			"its address %v (%v) is gone; %s. Verbs comes back with the address", p.gid, p.configured.Type, has)
	} else {
		path.SGIDIndex = uint8(index) //nolint:gosec // at most MaxUint8
	}
	if path == p.path && gid == p.gid && info.LID == p.lid && gone == p.gone {
		return false, err
	}
	p.mu.Lock()
	p.path, p.gid, p.lid, p.gone = path, gid, info.LID, gone
	p.mu.Unlock()
	return true, err
}

// chooseAddress returns the address to use and its index in the GID table. The order of
// preference is: the address at start, the address in use, a substitute (Options.Again). The
// index is -1 when the table has none of them; has then describes the table.
func (p *port) chooseAddress(table []verbs.GIDEntry) (gid verbs.GID, index int, has string) {
	for _, gid := range []verbs.GID{p.configured.GID, p.gid} {
		if index, has = p.findAddress(table, gid, int(p.path.SGIDIndex)); index >= 0 {
			return gid, index, has
		}
	}
	if p.replacement != nil {
		if e, _, err := p.replacement(table, p.configured); err == nil && e.Index <= math.MaxUint8 {
			return e.GID, e.Index, has
		}
	}
	return p.gid, -1, has
}

// address returns the address of new channels, and the path with its index.
func (p *port) address() (verbs.GID, verbs.Path) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.gid, p.path
}

// findAddress returns the index of an address in the GID table: the old index if that is
// possible, and -1 if there is none. has describes the table for an error text.
func (p *port) findAddress(table []verbs.GIDEntry, gid verbs.GID, old int) (index int, has string) {
	index = -1
	var others []string
	for _, e := range table {
		if e.GID == gid && e.Type == p.configured.Type && e.Index <= math.MaxUint8 && (index < 0 || e.Index == old) {
			index = e.Index
		}
		others = append(others, fmt.Sprintf("%d (%v, %v)", e.Index, e.GID, e.Type))
	}
	if len(others) == 0 {
		return index, "the GID table is empty"
	}
	return index, "there are " + strings.Join(others, ", ")
}

// withPort refreshes the port and runs f, which makes or connects a link. The attributes do
// not change while f runs. If the port cannot be queried, withPort checks whether the device
// is gone: not every device reports that by an event.
func (t *RdmaRemoteRendezvous) withPort(f func() error) error {
	p := t.port
	if err := t.refresh(); err != nil {
		if !errors.Is(err, errInactive) && !errors.Is(err, errNoAddress) {
			t.checkDevice()
		}
		return err
	}
	p.mu.RLock()
	defer p.mu.RUnlock()
	return f()
}

// sweep releases idle memory, and closes channels whose quarantined memory exceeds its
// limits. When its tick is late because the process was stopped, it waits for the next one:
// messages that free memory may have arrived and wait to be read.
func (t *RdmaRemoteRendezvous) sweep() {
	tick := time.NewTicker(sweepInterval)
	defer tick.Stop()
	for last := time.Now(); ; {
		select {
		case <-t.base.Done():
			return
		case <-tick.C:
		}
		now := time.Now()
		stopped := now.Sub(last) > sweepInterval+lateTimer
		if last = now; stopped {
			continue
		}
		t.logClose("memory region", t.port.memory.Sweep(now))
		for _, o := range t.port.memory.Overdue(now) {
			t.closeAccount(o)
		}
	}
}

// closeAccount closes the channel that an account belongs to.
func (t *RdmaRemoteRendezvous) closeAccount(o regmem.Overdue) {
	for _, p := range t.all() {
		p.mu.Lock()
		var owner *link
		for _, l := range p.links {
			if l.ownsAccount(o.Account) {
				owner = l
			}
		}
		p.mu.Unlock()
		if owner != nil {
			owner.bye(o.Reason)
		}
	}
}

// watchEvents handles the asynchronous events of the device. A device that is being removed
// may report only a change of its GID table, so each event makes watchEvents query the
// device (ARCHITECTURE.md section 6). The kernel waits for the removal until every object of
// the device is released.
func (t *RdmaRemoteRendezvous) watchEvents() {
	name := t.port.device.Info().Name
	for {
		e, err := t.port.device.NextEvent(t.base)
		if err != nil {
			if t.base.Err() == nil && !errors.Is(err, verbs.ErrClosed) {
				t.deviceLost(err)
			}
			return
		}
		t.opts.Logger.Info("event of the RDMA device", "device", name, "event", e.Kind.String(), "port", e.Port)
		switch e.Kind {
		case verbs.EventQPFatal, verbs.EventQPRequest, verbs.EventQPAccess:
			t.qpEvent(e)
		case verbs.EventDeviceFatal:
			t.deviceLost(verbs.Errorf("use", name, verbs.ErrDeviceGone, "%v", e.Kind))
			return
		}
		if !t.checkDevice() {
			return
		}
	}
}

// qpEvent passes an event of a queue pair to its link.
func (t *RdmaRemoteRendezvous) qpEvent(e verbs.AsyncEvent) {
	for _, p := range t.all() {
		for _, l := range p.existing() {
			if l.ownsQP(e.QPN) {
				l.qpEvent(e)
				return
			}
		}
	}
}

// refresh refreshes the port and logs a change.
func (t *RdmaRemoteRendezvous) refresh() error {
	changed, err := t.port.refresh()
	switch {
	case !changed:
	case err == nil:
		gid, path := t.port.address()
		t.opts.Logger.Info("the port has changed; new channels use", "port", t.port.String(), "GID", gid.String(), "index", path.SGIDIndex, "MTU", int(path.MTU))
	case errors.Is(err, errNoAddress):
		t.opts.Logger.Warn("the address of the port is gone; tensors go over "+t.fallback(), "reason", err)
	}
	return err
}

// checkDevice refreshes the port and ends the channels that cannot go on. It returns false
// when the device is lost.
func (t *RdmaRemoteRendezvous) checkDevice() bool {
	switch err := t.refresh(); {
	case errors.Is(err, errInactive):
		return true // channels go on if the port is active again before their retries run out
	case errors.Is(err, errNoAddress):
		for _, p := range t.all() { // responses to the old address do not reach this host
			p.leaveAll(err)
		}
		return true
	case err != nil:
		t.deviceLost(err)
		return false
	}
	gid, _ := t.port.address()
	for _, p := range t.all() {
		for _, l := range p.existing() {
			if from := l.own.Rails[0].GID; from != gid {
				why := verbs.Errorf("use", t.port.String(), errNoAddress, "its address %v is gone, and %v is used instead", from, gid)
				l.leave(why)
				p.offerGone(l, why)
			}
		}
		p.connectNow()
	}
	return true
}

// deviceLost ends every channel and closes the device with all its objects, since its
// removal waits for that. Receives take the fallback. Only the first call has an effect.
func (t *RdmaRemoteRendezvous) deviceLost(err error) {
	t.mu.Lock()
	second := t.lost != nil
	if !second {
		t.lost = err
	}
	t.mu.Unlock()
	if second {
		return
	}
	t.opts.Logger.Error("the RDMA device is lost; tensors go over "+t.fallback(), "device", t.port.device.Info().Name, "error", err)
	for _, p := range t.all() {
		p.deviceLost(err)
	}
	t.work.Go(func() {
		t.links.Wait()
		t.logClose("device", errors.Join(t.port.close(), t.port.device.Close()))
	})
}
