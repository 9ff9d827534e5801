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

// port is what the transport has of its device, for all peers: a protection
// domain, its memory, and the address that packets come from.
type port struct {
	device verbs.Device
	pd     verbs.PD
	memory *regmem.Memory
	was    verbs.GIDEntry  // the address of the start
	mtu    verbs.MTU       // the largest path MTU that may be used
	self   handshake.Offer // what all offers have in common

	// mu guards what follows the port of the device (follow). It is held,
	// shared, while a link is made or connected (steady).
	mu   sync.RWMutex
	path verbs.Path
	gid  verbs.GID // the address; its place in the table is path.SGIDIndex
	lid  verbs.LID
	gone bool // the address, as far as is known

	again  func([]verbs.GIDEntry, verbs.GIDEntry) (verbs.GIDEntry, bool, error)
	asking sync.Mutex // one follow at a time, so that the last answer counts
}

// Why a port is of no use for now, while its device is well.
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
		return nil, status.Errorf(status.InvalidArgument, "%s port %d takes messages of at most %d bytes, and those of a channel have up to %d: lower --eager-limit, now %d bytes",
			o.Device.Info().Name, o.Path.Port, most, message, o.EagerLimit)
	}
	p := &port{device: o.Device, path: o.Path, was: o.Address, again: o.Again, gid: o.Address.GID, mtu: o.Path.MTU, lid: info.LID}
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
	udp, err := p.sockets()
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

// sockets is where a device in software takes packets, which decides whom it can
// talk to (handshake.Talk); nothing of one of the kernel. A queue pair in INIT tells.
func (p *port) sockets() (udp verbs.UDPEndpoint, err error) {
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

// follow takes over what may change while the device is open: the place of the
// address in the table, the path MTU, the LID. An address that was taken away and
// set again comes to another place when a queue pair still holds the old one, and
// the old place may be somebody else's then. The error is errInactive,
// errNoAddress, or of the device. changed tells whether the answer is another than
// the last time.
func (p *port) follow() (changed bool, err error) {
	p.asking.Lock()
	defer p.asking.Unlock()
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
	path := p.path // it changes here alone
	path.MTU = min(p.mtu, info.ActiveMTU)
	gid, index, has := p.address(table)
	gone := index < 0
	if gone {
		err = verbs.Errorf("use", p.String(), errNoAddress,
			"its address %v (%v) is gone; %s. Verbs comes back with the address", p.gid, p.was.Type, has)
	} else {
		path.SGIDIndex = uint8(index) //nolint:gosec // place takes none beyond
	}
	if path == p.path && gid == p.gid && info.LID == p.lid && gone == p.gone {
		return false, err
	}
	p.mu.Lock()
	p.path, p.gid, p.lid, p.gone = path, gid, info.LID, gone
	p.mu.Unlock()
	return true, err
}

// address is the address to use and its place, or -1 and what the table has. It is
// that of the start wherever it can be had; else the present one; else one that may
// stand for it.
func (p *port) address(table []verbs.GIDEntry) (gid verbs.GID, index int, has string) {
	for _, gid := range []verbs.GID{p.was.GID, p.gid} {
		if index, has = p.place(table, gid, int(p.path.SGIDIndex)); index >= 0 {
			return gid, index, has
		}
	}
	if p.again != nil {
		if e, _, err := p.again(table, p.was); err == nil && e.Index <= math.MaxUint8 {
			return e.GID, e.Index, has
		}
	}
	return p.gid, -1, has
}

// now is the address that new channels have, and its place.
func (p *port) now() (verbs.GID, verbs.Path) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.gid, p.path
}

// place is where the table has an address, at the old index where it can be; -1
// when it has not, and what it has in words.
func (p *port) place(table []verbs.GIDEntry, gid verbs.GID, old int) (index int, has string) {
	index = -1
	var others []string
	for _, e := range table {
		if e.GID == gid && e.Type == p.was.Type && e.Index <= math.MaxUint8 && (index < 0 || e.Index == old) {
			index = e.Index
		}
		others = append(others, fmt.Sprintf("%d (%v, %v)", e.Index, e.GID, e.Type))
	}
	if len(others) == 0 {
		return index, "the table of addresses is empty"
	}
	return index, "there are " + strings.Join(others, ", ")
}

// steady runs f, which makes or connects a link, with the port as it is now; it
// does not change meanwhile. A port that cannot be asked is a reason to look whether
// the device is gone: not every device says so by an event.
func (t *RdmaRemoteRendezvous) steady(f func() error) error {
	p := t.port
	if err := t.follow(); err != nil {
		if !errors.Is(err, errInactive) && !errors.Is(err, errNoAddress) {
			t.look()
		}
		return err
	}
	p.mu.RLock()
	defer p.mu.RUnlock()
	return f()
}

// sweep gives back what has been idle, and ends channels that keep memory which
// is of use to nobody. After the process was stopped it waits for another tick: messages
// that free memory may have come meanwhile and wait to be read.
func (t *RdmaRemoteRendezvous) sweep() {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for last := time.Now(); ; {
		select {
		case <-t.base.Done():
			return
		case <-tick.C:
		}
		now := time.Now()
		stopped := now.Sub(last) > sweepEvery+lateBy
		if last = now; stopped {
			continue
		}
		t.closedObject("memory region", t.port.memory.Sweep(now))
		for _, o := range t.port.memory.Overdue(now) {
			t.closeAccount(o)
		}
	}
}

// closeAccount leaves the channel that an account is of.
func (t *RdmaRemoteRendezvous) closeAccount(o regmem.Overdue) {
	for _, p := range t.all() {
		p.mu.Lock()
		var owner *link
		for _, l := range p.links {
			if l.holds(o.Account) {
				owner = l
			}
		}
		p.mu.Unlock()
		if owner != nil {
			owner.bye(o.Reason)
		}
	}
}

// watchEvents takes the device's events. A device that is being removed may say
// nothing but that its table of addresses has changed, so each event is a reason
// to ask it (ARCHITECTURE.md section 6); the kernel waits until all of it has been
// let go.
func (t *RdmaRemoteRendezvous) watchEvents() {
	name := t.port.device.Info().Name
	for {
		e, err := t.port.device.NextEvent(t.base)
		if err != nil {
			if t.base.Err() == nil && !errors.Is(err, verbs.ErrClosed) {
				t.lose(err)
			}
			return
		}
		t.opts.Logger.Info("event of the RDMA device", "device", name, "event", e.Kind.String(), "port", e.Port)
		switch e.Kind {
		case verbs.EventQPFatal, verbs.EventQPRequest, verbs.EventQPAccess:
			t.broke(e)
		case verbs.EventDeviceFatal:
			t.lose(verbs.Errorf("use", name, verbs.ErrDeviceGone, "%v", e.Kind))
			return
		}
		if !t.look() {
			return
		}
	}
}

// broke tells the channel of a queue pair that it broke.
func (t *RdmaRemoteRendezvous) broke(e verbs.AsyncEvent) {
	for _, p := range t.all() {
		for _, l := range p.existing() {
			if l.has(e.QPN) {
				l.broke(e)
				return
			}
		}
	}
}

// follow asks the device how its port is. Whoever is the first to see a change, an
// event or a channel that is about to be made, says so.
func (t *RdmaRemoteRendezvous) follow() error {
	changed, err := t.port.follow()
	switch {
	case !changed:
	case err == nil:
		gid, path := t.port.now()
		t.opts.Logger.Info("the port has changed; new channels use", "port", t.port.String(), "GID", gid.String(), "index", path.SGIDIndex, "MTU", int(path.MTU))
	case errors.Is(err, errNoAddress):
		t.opts.Logger.Warn("the address of verbs is gone; tensors go over "+t.instead(), "reason", err)
	}
	return err
}

// look asks the device how its port is, and does what follows from it; false when
// the device is lost.
func (t *RdmaRemoteRendezvous) look() bool {
	switch err := t.follow(); {
	case errors.Is(err, errInactive):
		return true // what is under way finds out by itself, or goes on when the port is back in time
	case errors.Is(err, errNoAddress):
		for _, p := range t.all() { // packets from an address that is not ours find no way back
			p.leaveAll(err)
		}
		return true
	case err != nil:
		t.lose(err)
		return false
	}
	gid, _ := t.port.now()
	for _, p := range t.all() {
		for _, l := range p.existing() {
			if from := l.own.Rails[0].GID; from != gid {
				why := verbs.Errorf("use", t.port.String(), errNoAddress, "its address %v is gone, and %v is used instead", from, gid)
				l.leave(why)
				p.offerGone(l, why)
			}
		}
		p.hurry()
	}
	return true
}

// lose gives up the device: every channel ends, and everything of it is closed,
// since whoever removes it waits for that. Receives go over the other wire.
// Who comes second, of those that find out, does nothing.
func (t *RdmaRemoteRendezvous) lose(err error) {
	t.mu.Lock()
	second := t.lost != nil
	if !second {
		t.lost = err
	}
	t.mu.Unlock()
	if second {
		return
	}
	t.opts.Logger.Error("the RDMA device is lost; tensors go over "+t.instead(), "device", t.port.device.Info().Name, "error", err)
	for _, p := range t.all() {
		p.lose(err)
	}
	t.work.Go(func() {
		t.links.Wait()
		t.closedObject("device", errors.Join(t.port.close(), t.port.device.Close()))
	})
}
