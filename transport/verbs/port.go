package verbstransport

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/tryst-rdma/tryst/internal/handshake"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/transport/verbs/internal/regmem"
	"github.com/tryst-rdma/tryst/transport/verbs/internal/route"
	"github.com/tryst-rdma/tryst/verbs"
)

// port is the port of a device: its protection domain, its registered memory, and the
// address that packets are sent from. All peers share it.
type port struct {
	device     verbs.Device
	name       string // of device
	route      route.Route
	options    PortOptions
	pd         verbs.PD
	memory     *regmem.Domain  // the transport's memory, as the device addresses it
	configured verbs.GIDEntry  // the address when the transport was started
	mtu        verbs.MTU       // upper bound of the path MTU
	self       handshake.Offer // the part that all offers share
	rails      int             // queue pairs of a channel
	links      group           // counts the links on the device

	// mu guards the attributes that refresh updates. withPort holds it, shared, while a
	// link is made or connected.
	mu    sync.RWMutex
	path  verbs.Path
	gid   verbs.GID // the address in use; its index in the GID table is path.SGIDIndex
	lid   verbs.LID
	gone  bool             // the GID table did not have the address at the last refresh
	table []verbs.GIDEntry // the GID table at the last refresh
	// reach are the addresses that the port may use, the one in use first. Callers that
	// hold a peer's lock read it, so it has no lock of its own.
	reach atomic.Pointer[[]verbs.GID]

	replacement func([]verbs.GIDEntry, verbs.GIDEntry) (verbs.GIDEntry, bool, error)
	refreshing  sync.Mutex // serialises refresh, so that the last result wins; guards down
	down        bool       // the port was not active at the last refresh
}

// Why a port cannot be used for now although its device works.
var (
	errInactive  = errors.New("the port is not active")
	ErrNoAddress = errors.New("the port has lost its address")
)

// openPort registers the memory with a device and asks what its port supports.
func openPort(o *Options, memory *regmem.Memory, d PortOptions) (*port, error) {
	info, err := d.Device.Port(d.Path.Port)
	if err != nil {
		return nil, err
	}
	d.Rails = railsOf(info.Link, d.Rails)
	if err := o.checkLimits(d.Device.Info(), d.Rails); err != nil {
		return nil, err
	}
	if most, message := info.MaxMessage, o.messageSize(); int64(most) < int64(message) {
		return nil, status.Errorf(status.InvalidArgument, "%s port %d supports messages of at most %d bytes, and those of a channel have up to %d: lower the setting eager-limit, now %d bytes",
			d.Device.Info().Name, d.Path.Port, most, message, o.EagerLimit)
	}
	p := &port{device: d.Device, name: d.Device.Info().Name, options: d, route: route.Of(info.Link), path: d.Path, configured: d.Address, replacement: d.Again, gid: d.Address.GID, mtu: d.Path.MTU, lid: info.LID, rails: d.Rails}
	p.path.SGIDIndex = uint8(d.Address.Index) //nolint:gosec // ibv_ah_attr has 8 bits; discovery refuses more
	if p.table, err = d.Device.GIDs(d.Path.Port); err != nil {
		return nil, err
	}
	p.setUsable()
	p.path.Access = verbs.AccessLocalWrite | verbs.AccessRemoteWrite
	if p.mtu == 0 {
		p.mtu = info.ActiveMTU
	}
	p.path.MTU = p.mtu
	if p.path.MinRNRTimer == 0 {
		p.path.MinRNRTimer = verbs.DefaultMinRNRTimer
	}
	if p.pd, err = d.Device.AllocPD(); err != nil {
		return nil, err
	}
	if p.memory, err = memory.Attach(p.pd, d.Device.Info()); err != nil {
		return nil, errors.Join(err, p.pd.Close())
	}
	udp, err := p.udpEndpoint()
	if err != nil {
		return nil, errors.Join(err, p.close())
	}
	message := o.messageSize()
	p.self = o.identity()
	p.self.Link, p.self.GIDType = info.Link, d.Address.Type
	p.self.Window, p.self.ReceiveSize, p.self.EagerLimit = uint32(o.Window), uint32(message), uint32(o.EagerLimit) //nolint:gosec // limits
	p.self.MaxMessage = info.MaxMessage
	p.self.Rails = []handshake.Rail{{Endpoint: verbs.Endpoint{GID: p.gid, LID: p.lid, PSN: verbs.RandomPSN(), UDP: udp}, MTU: p.path.MTU}}
	return p, nil
}

// railsOf is the number of rails of a channel over a link, for a number in the options. Over TCP
// contents have a rail of their own (channel.Config.Apart).
func railsOf(l verbs.LinkLayer, n int) int {
	if l == verbs.LinkTCP {
		return max(n, 2)
	}
	return max(n, 1)
}

// identity is what an offer has without a device.
func (o *Options) identity() handshake.Offer {
	return handshake.Offer{Task: o.Task, Incarnation: o.Self.Incarnation, Version: handshake.Version, Host: o.Host}
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

func (p *port) close() error { return errors.Join(p.memory.Detach(), p.pd.Close()) }

func (p *port) String() string { return fmt.Sprintf("%s port %d", p.name, p.path.Port) }

// refresh reads the attributes that may change while the device is open: the index of the
// address in the GID table, the path MTU, the LID. An address that was removed and added
// again gets another index while a queue pair holds the old entry, and the old index may
// then belong to another address. The error is errInactive, ErrNoAddress, or an error of the
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
		changed, p.down = !p.down, true
		return changed, verbs.Errorf("use", p.String(), errInactive, "the port is %v", info.State)
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
		err = verbs.Errorf("use", p.String(), ErrNoAddress,
			"its address %v (%v) is gone; %s. Verbs comes back with the address", p.gid, p.configured.Type, has)
	} else {
		path.SGIDIndex = uint8(index) //nolint:gosec // at most MaxUint8
	}
	changed = path != p.path || gid != p.gid || info.LID != p.lid || gone != p.gone || p.down
	p.down = false
	p.mu.Lock()
	p.path, p.gid, p.lid, p.gone, p.table = path, gid, info.LID, gone, table
	p.setUsable()
	p.mu.Unlock()
	return changed, err
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
