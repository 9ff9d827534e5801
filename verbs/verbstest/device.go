package verbstest

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"sync/atomic"

	"github.com/tryst-rdma/tryst/verbs"
)

// NIC is a device of a host as tests control it: its methods inject faults.
type NIC struct {
	f       *Fabric
	host    *Host
	name    string
	options DeviceOptions
	guid    uint64

	// The fabric's lock guards the fields below.
	removed bool
	ports   []*port
	open    map[*device]struct{}
	qps     map[verbs.QPN]*qp
	local   map[verbs.LKey]*mr
	remote  map[verbs.RKey]*grant
	address uint64 // of the next memory region to be registered
}

// port is a port of a NIC.
type port struct {
	nic    *NIC
	number uint8
	down   bool
	lid    verbs.LID
	gids   [gidTableSize]verbs.GIDEntry
	wires  map[*port]*wire // by destination, which may be the port itself
}

func newNIC(h *Host, index int, o DeviceOptions) *NIC {
	f := h.f
	if o.Name == "" {
		o.Name = fmt.Sprintf("mem%d", index)
	}
	o.Ports = max(o.Ports, 1)
	if o.Link == verbs.LinkUnspecified {
		o.Link = verbs.LinkEthernet
	}
	if o.MTU == 0 {
		o.MTU = defaultMTU
	}
	if o.MaxMessage == 0 {
		o.MaxMessage = defaultMaxMessage
	}
	if o.MaxInline == 0 {
		o.MaxInline = defaultMaxInline
	}
	o.MaxInline = max(o.MaxInline, 0)
	if o.Limits == (verbs.Limits{}) {
		o.Limits = defaultLimits()
	}
	o.Limits.Atomics = o.Limits.Atomics && !o.NoAtomics
	n := &NIC{
		f: f, host: h, name: o.Name, options: o, guid: 0x02005e0000000000 | uint64(h.number)<<8 | uint64(index+1),
		open: make(map[*device]struct{}), qps: make(map[verbs.QPN]*qp),
		local: make(map[verbs.LKey]*mr), remote: make(map[verbs.RKey]*grant),
		// Any address of user space. Real devices use the addresses of the process.
		address: 0x7000_0000_0000 + uint64(f.random.Uint32N(1<<20))<<20,
	}
	for i := range o.Ports {
		p := &port{nic: n, number: i + 1, wires: make(map[*port]*wire)}
		n.ports = append(n.ports, p)
		linkLocal := verbs.GID{0: 0xfe, 1: 0x80, 8: 0x02, 11: 0xff, 12: 0xfe, 13: byte(h.number), 14: byte(index + 1), 15: i + 1}
		if o.Link == verbs.LinkInfiniBand {
			p.lid = verbs.LID(len(f.lids) + 1)
			f.lids[p.lid] = p
			p.setGIDLocked(0, linkLocal, verbs.GIDTypeIB)
			continue
		}
		if o.Link == verbs.LinkTCP || o.Link == verbs.LinkShared {
			p.setGIDLocked(0, f.processGID(), verbs.GIDTypeProcess)
			continue
		}
		p.setGIDLocked(gidIndexLinkLocal, linkLocal, verbs.GIDTypeRoCEv2)
		// 198.18.0.0/15 is for tests of devices (RFC 2544, C.2.2).
		v4 := netip.AddrFrom4([4]byte{198, 18, byte(h.number), byte(index)<<4 | (i + 1)})
		p.setGIDLocked(gidIndexIPv4, verbs.GIDFromAddr(v4), verbs.GIDTypeRoCEv2)
	}
	return n
}

// processGID returns the GID of a device of a process: a random number.
func (f *Fabric) processGID() (g verbs.GID) {
	binary.LittleEndian.PutUint64(g[:], f.random.Uint64())
	binary.LittleEndian.PutUint64(g[8:], f.random.Uint64())
	return g
}

func (p *port) setGIDLocked(index int, g verbs.GID, t verbs.GIDType) {
	if old := p.gids[index].GID; p.nic.f.gids[old] == p {
		delete(p.nic.f.gids, old)
	}
	p.gids[index] = verbs.GIDEntry{Index: index, GID: g, Type: t}
	if !g.IsZero() {
		p.nic.f.gids[g] = p
	}
}

// up reports whether packets pass the port.
func (p *port) up() bool { return !p.down && !p.nic.removed }

// info returns the description of the NIC.
func (n *NIC) info() verbs.DeviceInfo {
	return verbs.DeviceInfo{
		Name: n.name, NodeGUID: n.guid, Vendor: 0, Firmware: "in memory", Ports: n.options.Ports,
		GoMemory: !n.options.NoGoMemory, Windows: !n.options.NoWindows, Limits: n.options.Limits,
	}
}

// notifyLocked sends an event to all open devices of the NIC.
func (n *NIC) notifyLocked(e verbs.AsyncEvent) {
	for d := range n.open {
		d.async.push(e)
	}
}

// PortDown takes a port down: its packets are lost in both directions. Open
// devices get EventPortDown.
func (n *NIC) PortDown(number uint8) { n.setPort(number, true, verbs.EventPortDown) }

// PortUp ends that. Open devices get EventPortActive.
func (n *NIC) PortUp(number uint8) { n.setPort(number, false, verbs.EventPortActive) }

func (n *NIC) setPort(number uint8, down bool, kind verbs.EventKind) {
	n.f.enter()
	defer n.f.leave()
	if p := n.portLocked(number); p != nil && p.down != down {
		p.down = down
		if n.f.hasBug(silentPorts) {
			return
		}
		n.notifyLocked(verbs.AsyncEvent{Kind: kind, Port: number})
	}
}

// SetGID changes an entry of a port's GID table; the zero GID empties it. Packets from and
// to the old address are lost. Open devices get EventGIDChange.
func (n *NIC) SetGID(number uint8, index int, g verbs.GID) {
	n.f.enter()
	defer n.f.leave()
	p := n.portLocked(number)
	if p == nil || index < 0 || index >= gidTableSize {
		return
	}
	t := verbs.GIDTypeRoCEv2
	if n.options.Link == verbs.LinkInfiniBand {
		t = verbs.GIDTypeIB
	}
	p.setGIDLocked(index, g, t)
	n.notifyLocked(verbs.AsyncEvent{Kind: verbs.EventGIDChange, Port: number})
}

// Remove unplugs the device. Open devices get EventDeviceFatal, and all outstanding work
// requests are flushed. Later calls fail with ErrDeviceGone, except Close and the polls that
// return the flushed completions.
func (n *NIC) Remove() {
	n.f.enter()
	defer n.f.leave()
	if n.removed {
		return
	}
	n.removed = true
	for _, q := range n.qps {
		q.breakLocked()
	}
	for d := range n.open {
		d.async.push(verbs.AsyncEvent{Kind: verbs.EventDeviceFatal})
		d.markGoneLocked()
	}
}

// Insert plugs the device in again. It can be opened again; objects from before Remove stay
// unusable.
func (n *NIC) Insert() {
	n.f.mu.Lock()
	defer n.f.mu.Unlock()
	n.removed = false
}

// BreakQP makes a queue pair fail without a cause on its connection, with EventQPFatal.
func (n *NIC) BreakQP(number verbs.QPN) {
	n.f.enter()
	defer n.f.leave()
	if q := n.qps[number]; q != nil {
		q.breakLocked()
		q.Event(verbs.EventQPFatal)
	}
}

func (n *NIC) portLocked(number uint8) *port {
	if number < 1 || int(number) > len(n.ports) {
		return nil
	}
	return n.ports[number-1]
}

// device implements verbs.Device: one opening of a NIC.
type device struct {
	nic        *NIC
	gone       atomic.Bool // the NIC was removed, or the process killed
	killed     atomic.Bool
	goneSignal chan struct{} // closed when gone is set
	done       chan struct{} // closed by Close

	// The fabric's lock guards the fields below.
	closed   bool
	async    asyncQueue
	waiting  bool          // a NextEvent is running
	returned chan struct{} // made by Close, closed when the running NextEvent returns
	pds      map[*pd]struct{}
	cqs      map[*cq]struct{}
	mrs      int
	qps      int
	windows  int
}

func newDevice(n *NIC) *device {
	return &device{
		nic: n, goneSignal: make(chan struct{}), done: make(chan struct{}),
		async: asyncQueue{wake: make(chan struct{}, 1)}, pds: make(map[*pd]struct{}), cqs: make(map[*cq]struct{}),
	}
}

func (d *device) goneError(op string) error {
	if d.killed.Load() {
		return verbs.Errorf(op, d.nic.name, verbs.ErrDeviceGone, "the process that opened it was killed")
	}
	return verbs.Errorf(op, d.nic.name, verbs.ErrDeviceGone, "the device was removed")
}

// usableLocked returns nil if the device is open and present, else the error of op.
func (d *device) usableLocked(op string) error {
	switch {
	case d.closed:
		return verbs.Errorf(op, d.nic.name, verbs.ErrClosed, "the device is closed")
	case d.gone.Load():
		return d.goneError(op)
	}
	return nil
}

// markGoneLocked marks the device as gone and ends Wait and NextEvent.
func (d *device) markGoneLocked() {
	if d.gone.Swap(true) {
		return
	}
	for c := range d.cqs {
		c.dead.Store(true)
	}
	close(d.goneSignal)
}

// killLocked destroys all objects, as the kernel does when the process dies.
func (d *device) killLocked() {
	d.killed.Store(true)
	n := d.nic
	for num, q := range n.qps {
		if q.pd.dev == d {
			q.detachInFlightLocked()
			q.closed = true
			delete(n.qps, num)
		}
	}
	for key, m := range n.local {
		if m.pd.dev == d {
			delete(n.local, key)
		}
	}
	for key, g := range n.remote {
		if g.mr.pd.dev == d {
			delete(n.remote, key)
		}
	}
	delete(n.open, d)
	d.markGoneLocked()
}

// Info implements verbs.Device.
func (d *device) Info() verbs.DeviceInfo { return d.nic.info() }

// Port implements verbs.Device.
func (d *device) Port(number uint8) (verbs.PortInfo, error) {
	d.nic.f.mu.Lock()
	defer d.nic.f.mu.Unlock()
	p, err := d.lookUpLocked("query port", number)
	if err != nil {
		return verbs.PortInfo{}, err
	}
	o := &d.nic.options
	info := verbs.PortInfo{
		State: verbs.PortActive, Link: o.Link, ActiveMTU: o.MTU, MaxMTU: defaultMTU, LID: p.lid,
		MaxMessage: o.MaxMessage, GIDs: gidTableSize, PKeys: 1,
	}
	if p.down {
		info.State = verbs.PortDown
	}
	return info, nil
}

func (d *device) lookUpLocked(op string, number uint8) (*port, error) {
	if err := d.usableLocked(op); err != nil {
		return nil, err
	}
	p := d.nic.portLocked(number)
	if p == nil {
		return nil, verbs.Errorf(op, fmt.Sprintf("%s port %d", d.nic.name, number), verbs.ErrNotFound, "the ports are 1 to %d", len(d.nic.ports))
	}
	return p, nil
}

// GIDs implements verbs.Device.
func (d *device) GIDs(number uint8) ([]verbs.GIDEntry, error) {
	d.nic.f.mu.Lock()
	defer d.nic.f.mu.Unlock()
	p, err := d.lookUpLocked("list GIDs", number)
	if err != nil {
		return nil, err
	}
	var list []verbs.GIDEntry
	for _, e := range p.gids {
		if !e.GID.IsZero() {
			list = append(list, e)
		}
	}
	return list, nil
}

// AllocPD implements verbs.Device.
func (d *device) AllocPD() (verbs.PD, error) {
	d.nic.f.mu.Lock()
	defer d.nic.f.mu.Unlock()
	if err := d.usableLocked("allocate PD"); err != nil {
		return nil, err
	}
	if len(d.pds) >= d.nic.options.Limits.PDs {
		return nil, verbs.Errorf("allocate PD", d.nic.name, verbs.ErrInvalid, "%d are open, the limit of the device", len(d.pds))
	}
	p := &pd{dev: d}
	d.pds[p] = struct{}{}
	return p, nil
}

// CreateCQ implements verbs.Device.
func (d *device) CreateCQ(c verbs.CQConfig) (verbs.CQ, error) {
	d.nic.f.mu.Lock()
	defer d.nic.f.mu.Unlock()
	const op = "create CQ"
	if err := d.usableLocked(op); err != nil {
		return nil, err
	}
	switch limits := d.nic.options.Limits; {
	case c.Size < 1 || c.Size > limits.CQEntries:
		return nil, verbs.Errorf(op, d.nic.name, verbs.ErrInvalid, "size %d is out of range (1 to %d)", c.Size, limits.CQEntries)
	case len(d.cqs) >= limits.CQs:
		return nil, verbs.Errorf(op, d.nic.name, verbs.ErrInvalid, "%d are open, the limit of the device", len(d.cqs))
	}
	q := newCQ(d, c.Size)
	d.cqs[q] = struct{}{}
	return q, nil
}

// NextEvent implements verbs.Device.
func (d *device) NextEvent(ctx context.Context) (verbs.AsyncEvent, error) {
	f := d.nic.f
	f.mu.Lock()
	switch {
	case d.closed:
		f.mu.Unlock()
		return verbs.AsyncEvent{}, verbs.Errorf("next event", d.nic.name, verbs.ErrClosed, "the device is closed")
	case d.waiting:
		f.mu.Unlock()
		return verbs.AsyncEvent{}, verbs.Errorf("next event", d.nic.name, verbs.ErrBusy, "another goroutine is in NextEvent")
	}
	d.waiting = true
	f.mu.Unlock()
	e, err := d.nextEvent(ctx)
	f.mu.Lock()
	d.waiting = false
	if d.returned != nil {
		close(d.returned)
		d.returned = nil
	}
	f.mu.Unlock()
	return e, err
}

func (d *device) nextEvent(ctx context.Context) (verbs.AsyncEvent, error) {
	for {
		if err := ctx.Err(); err != nil {
			return verbs.AsyncEvent{}, err
		}
		d.nic.f.mu.Lock()
		if len(d.async.events) > 0 && !d.killed.Load() {
			e := d.async.events[0]
			d.async.events = d.async.events[1:]
			d.nic.f.mu.Unlock()
			return e, nil
		}
		d.nic.f.mu.Unlock()
		if d.gone.Load() {
			return verbs.AsyncEvent{}, d.goneError("next event")
		}
		select {
		case <-d.async.wake:
		case <-d.goneSignal:
		case <-ctx.Done():
			return verbs.AsyncEvent{}, ctx.Err()
		case <-d.done:
			return verbs.AsyncEvent{}, verbs.Errorf("next event", d.nic.name, verbs.ErrClosed, "the device was closed")
		}
	}
}

// Counts implements verbs.Device.
func (d *device) Counts() verbs.Counts {
	d.nic.f.mu.Lock()
	defer d.nic.f.mu.Unlock()
	return d.countsLocked()
}

func (d *device) countsLocked() verbs.Counts {
	return verbs.Counts{PDs: len(d.pds), MRs: d.mrs, CQs: len(d.cqs), QPs: d.qps, Windows: d.windows}
}

// Close implements verbs.Device.
func (d *device) Close() error {
	f := d.nic.f
	f.mu.Lock()
	if d.closed {
		f.mu.Unlock()
		return nil
	}
	if c := d.countsLocked(); c != (verbs.Counts{}) && !d.killed.Load() {
		f.mu.Unlock()
		return verbs.Errorf("close", d.nic.name, verbs.ErrBusy, "still open: %d PDs, %d MRs, %d CQs, %d QPs, %d windows",
			c.PDs, c.MRs, c.CQs, c.QPs, c.Windows)
	}
	d.closed = true
	delete(d.nic.open, d)
	var returned chan struct{}
	if d.waiting {
		returned = make(chan struct{})
		d.returned = returned
	}
	f.mu.Unlock()
	close(d.done)
	if returned != nil {
		<-returned
	}
	return nil
}
