package verbstest

import (
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync/atomic"

	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/internal/soft"
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
		d.Event(e)
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
	n.f.mu.Lock()
	n.removed = true
	n.f.mu.Unlock()
	for _, d := range n.devices() {
		d.end("the device was removed", func(q *qp) { q.breakLocked() })
	}
}

// devices returns the open devices of the NIC.
func (n *NIC) devices() []*device {
	n.f.mu.Lock()
	defer n.f.mu.Unlock()
	return slices.Collect(maps.Keys(n.open))
}

// counts returns the number of open objects of all openings.
func (n *NIC) counts() (sum verbs.Counts) {
	for _, d := range n.devices() {
		c := d.Counts()
		sum.PDs += c.PDs
		sum.MRs += c.MRs
		sum.CQs += c.CQs
		sum.QPs += c.QPs
		sum.Windows += c.Windows
	}
	return sum
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

// device implements verbs.Device: one opening of a NIC. Its lock is taken before the fabric's.
type device struct {
	soft.Device
	nic     *NIC
	killed  atomic.Bool
	domains []*soft.Domain // all of them, for anyDomain; guarded by the fabric's lock
}

func newDevice(n *NIC) *device {
	d := &device{nic: n}
	random := rand.New(rand.NewPCG(n.f.random.Uint64(), 0)) //nolint:gosec // reproducible on purpose
	d.Init(n.name, n.options.Limits, soft.Hooks{RegionClosed: d.regionClosed, WindowClosed: d.windowClosed, Random: random.Uint32})
	return d
}

// closed returns the error of a Close. There is none after the process was killed.
func (d *device) closed(err error) error {
	if d.killed.Load() {
		return nil
	}
	return err
}

// end marks the device as gone, and ends its queue pairs.
func (d *device) end(why string, endLocked func(*qp)) {
	d.Mu.Lock()
	defer d.Mu.Unlock()
	first := d.MarkGoneLocked(why)
	d.nic.f.enter()
	for _, q := range d.nic.qps {
		if q.pd.dev == d {
			endLocked(q)
		}
	}
	d.nic.f.leave()
	if first {
		d.Event(verbs.AsyncEvent{Kind: verbs.EventDeviceFatal})
		d.SignalGoneLocked()
	}
}

// kill destroys all objects, as the kernel does when the process dies.
func (d *device) kill() {
	d.killed.Store(true)
	d.end("the process that opened it was killed", func(q *qp) {
		q.detachInFlightLocked()
		q.closed = true
		delete(q.nic.qps, q.number)
	})
	d.nic.f.mu.Lock()
	defer d.nic.f.mu.Unlock()
	delete(d.nic.open, d)
}

// Info implements verbs.Device.
func (d *device) Info() verbs.DeviceInfo { return d.nic.info() }

// Port implements verbs.Device.
func (d *device) Port(number uint8) (verbs.PortInfo, error) {
	d.Mu.Lock()
	defer d.Mu.Unlock()
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

// lookUpLocked returns a port. The caller holds both locks.
func (d *device) lookUpLocked(op string, number uint8) (*port, error) {
	if err := d.UsableLocked(op); err != nil {
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
	d.Mu.Lock()
	defer d.Mu.Unlock()
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

// NextEvent implements verbs.Device.
func (d *device) NextEvent(ctx context.Context) (verbs.AsyncEvent, error) {
	e, err := d.Device.NextEvent(ctx)
	if err == nil && d.killed.Load() {
		return verbs.AsyncEvent{}, d.Gone("next event")
	}
	return e, err
}

// Close implements verbs.Device.
func (d *device) Close() error {
	_, err := d.End()
	if err == nil {
		d.nic.f.mu.Lock()
		defer d.nic.f.mu.Unlock()
		delete(d.nic.open, d)
	}
	return d.closed(err)
}
