//go:build linux

package shm

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"

	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/internal/soft"
)

// Devices implements verbs.Provider.
func (p *Provider) Devices() ([]verbs.DeviceInfo, error) { return []verbs.DeviceInfo{info()}, nil }

func info() verbs.DeviceInfo {
	return verbs.DeviceInfo{Name: DeviceName, Firmware: "in process", Ports: 1, GoMemory: true, Windows: true, Limits: soft.Limits()}
}

// Open implements verbs.Provider. Each opened device has a socket and a GID of its own.
func (p *Provider) Open(name string) (verbs.Device, error) {
	if name != DeviceName {
		return nil, verbs.Errorf("open", name, verbs.ErrNotFound, "there is no device %q; the devices are: %s", name, DeviceName)
	}
	probe, err := newMemfd(ringSize(minEntry))
	if err != nil {
		return nil, &verbs.Error{Op: "open", Object: name, Err: fmt.Errorf("%w: this host has no sealed memfds: %w", verbs.ErrUnavailable, err)}
	}
	probe.free()
	d := &device{provider: p, logger: p.options.Logger, qps: make(map[verbs.QPN]*qp), closer: closer{provider: p}}
	d.Init(name, soft.Limits(), soft.Hooks{RegionClosed: d.regionClosed, WindowClosed: windowClosed})
	d.maps.limit, d.maps.populate = maxMappedPeer, readAll
	d.ctx, d.cancel = context.WithCancel(context.Background())
	rand.Read(d.gid[:]) // never fails
	if d.userNS, err = p.ownNS(); err != nil {
		return nil, &verbs.Error{Op: "open", Object: name, Err: fmt.Errorf("%w: %w", verbs.ErrUnavailable, err)}
	}
	if err := d.listen(); err != nil {
		return nil, &verbs.Error{Op: "open", Object: name, Err: fmt.Errorf("%w: %w", verbs.ErrUnavailable, err)}
	}
	return d, nil
}

// device implements verbs.Device.
//
// Lock order: device, then the drive lock of a queue pair, the queue pair; then one of keys,
// mappings, completion queue and events.
type device struct {
	soft.Device
	provider  *Provider
	logger    *slog.Logger
	shareLog  errorLog // that memory is not shared
	breachLog errorLog // of peers against the protocol
	gid       verbs.GID
	userNS    uint64
	maps      mappings
	ctx       context.Context // ends with Close
	cancel    context.CancelFunc
	fileIDs   atomic.Uint32 // the last one that was given away
	spinning  atomic.Int32  // goroutines that look for work without sleeping
	bans      bans          // processes that share no memory with this one any more

	listeners []*net.UnixListener
	socket    string         // the name of the first one, in the abstract namespace
	hasPath   bool           // the second one is in Options.Dir, by the same name
	unproven  unproven       // accepted connections without a proof
	closer    closer         // of connections and descriptors whose close may block
	takers    takers         // of descriptors that proved peers pass
	running   sync.WaitGroup // goroutines of listeners and of connections that prove themselves

	qps map[verbs.QPN]*qp // open ones, guarded by Device.Mu
}

const name = DeviceName // of every opened device, in errors

// Info implements verbs.Device.
func (d *device) Info() verbs.DeviceInfo { return info() }

// Port implements verbs.Device.
func (d *device) Port(number uint8) (verbs.PortInfo, error) {
	if err := d.CheckPort("query port", number); err != nil {
		return verbs.PortInfo{}, err
	}
	return verbs.PortInfo{
		State: verbs.PortActive, Link: verbs.LinkShared, ActiveMTU: verbs.MTU4096, MaxMTU: verbs.MTU4096,
		MaxMessage: maxMessage, GIDs: 1, PKeys: 1,
	}, nil
}

// GIDs implements verbs.Device.
func (d *device) GIDs(number uint8) ([]verbs.GIDEntry, error) {
	if err := d.CheckPort("list GIDs", number); err != nil {
		return nil, err
	}
	return []verbs.GIDEntry{{Index: 0, GID: d.gid, Type: verbs.GIDTypeProcess}}, nil
}

// find returns the queue pair of a number, nil for none.
func (d *device) find(n verbs.QPN) *qp {
	d.Mu.Lock()
	defer d.Mu.Unlock()
	return d.qps[n]
}

// Close implements verbs.Device.
func (d *device) Close() error {
	ended, err := d.End()
	if !ended {
		return err
	}
	d.cancel()
	for _, l := range d.listeners {
		d.stopListening(l)
	}
	d.running.Wait() // none of them blocks; those of closer and takers may, so they are left alone
	return nil
}

// CreateCQ implements verbs.Device. A goroutine that polls the queue works on the rings of its queue pairs.
func (d *device) CreateCQ(c verbs.CQConfig) (verbs.CQ, error) { return d.NewDrivenCQ(c) }
