package verbstransport

import (
	"errors"
	"math/rand/v2"
	"time"

	"github.com/tryst-rdma/tryst/transport/verbs/mem"
	"github.com/tryst-rdma/tryst/transport/verbs/pairing"
	"github.com/tryst-rdma/tryst/verbs"
)

// port is what the transport has of its device, for all peers: a protection
// domain and its memory.
type port struct {
	device verbs.Device
	pd     verbs.PD
	memory *mem.Memory
	path   verbs.Path
	gid    verbs.GID
	lid    verbs.LID
	self   pairing.Offer // what all offers have in common
}

func openPort(o *Options) (*port, error) {
	info, err := o.Device.Port(o.Path.Port)
	if err != nil {
		return nil, err
	}
	p := &port{device: o.Device, path: o.Path, gid: o.Address.GID, lid: info.LID}
	p.path.SGIDIndex = uint8(o.Address.Index) //nolint:gosec // ibv_ah_attr has 8 bits; discovery refuses more
	p.path.Access = verbs.AccessLocalWrite | verbs.AccessRemoteWrite
	if p.path.MTU == 0 {
		p.path.MTU = info.ActiveMTU
	}
	if p.path.MinRNRTimer == 0 {
		p.path.MinRNRTimer = verbs.DefaultMinRNRTimer
	}
	if p.pd, err = o.Device.AllocPD(); err != nil {
		return nil, err
	}
	o.Memory.Device = o.Device.Info()
	if p.memory, err = mem.New(p.pd, o.Memory); err != nil {
		return nil, errors.Join(err, p.pd.Close())
	}
	message := o.messageSize()
	p.self = pairing.Offer{
		Task: o.Task, Incarnation: o.Self.Incarnation, Version: pairing.Version,
		Link: info.Link, GIDType: o.Address.Type,
		Window: uint32(o.Window), ReceiveSize: uint32(message), EagerLimit: uint32(o.EagerLimit), //nolint:gosec // limits
		MaxMessage: info.MaxMessage,
		Rails:      []pairing.Rail{{Endpoint: verbs.Endpoint{GID: p.gid, LID: p.lid, PSN: verbs.PSN(rand.Uint32N(1 << 24))}, MTU: p.path.MTU}},
	}
	return p, nil
}

func (p *port) close() error { return errors.Join(p.memory.Close(), p.pd.Close()) }

// sweep gives back what has been idle, and ends channels that keep memory which
// is of use to nobody.
func (t *Transport) sweep() {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		select {
		case <-t.base.Done():
			return
		case now := <-tick.C:
			t.closedObject("memory region", t.port.memory.Sweep(now))
			for _, o := range t.port.memory.Overdue(now) {
				t.closeAccount(o)
			}
		}
	}
}

// closeAccount leaves the channel that an account is of.
func (t *Transport) closeAccount(o mem.Overdue) {
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
func (t *Transport) watchEvents() {
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
		if e.Kind == verbs.EventDeviceFatal {
			t.lose(verbs.Errorf("use", name, verbs.ErrDeviceGone, "%v", e.Kind))
			return
		}
		info, err := t.port.device.Port(t.port.path.Port)
		if err != nil {
			t.lose(err)
			return
		}
		if info.State != verbs.PortActive {
			continue // what is under way finds out by itself, or goes on when the port is back in time
		}
		for _, p := range t.all() {
			p.hurry()
		}
	}
}

// lose gives up the device: every channel ends, and everything of it is closed,
// since whoever removes it waits for that. Receives go over the other wire.
func (t *Transport) lose(err error) {
	t.mu.Lock()
	t.lost = err
	t.mu.Unlock()
	t.opts.Logger.Error("the RDMA device is lost; tensors go over "+t.instead(), "device", t.port.device.Info().Name, "error", err)
	for _, p := range t.all() {
		p.lose(err)
	}
	t.work.Go(func() {
		t.links.Wait()
		t.closedObject("device", errors.Join(t.port.close(), t.port.device.Close()))
	})
}
