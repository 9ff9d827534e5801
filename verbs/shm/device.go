//go:build linux

package shm

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"

	"github.com/tryst-rdma/tryst/verbs"
)

// Devices implements verbs.Provider.
func (p *Provider) Devices() ([]verbs.DeviceInfo, error) { return []verbs.DeviceInfo{info()}, nil }

func info() verbs.DeviceInfo {
	return verbs.DeviceInfo{Name: DeviceName, Firmware: "in process", Ports: 1, GoMemory: true, Windows: true, Limits: limits()}
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
	d := &device{
		provider: p, logger: p.options.Logger, keys: newKeys(), async: asyncQueue{wake: make(chan struct{}, 1)}, done: make(chan struct{}),
		pds: make(map[*pd]struct{}), cqs: make(map[*cq]struct{}), qps: make(map[verbs.QPN]*qp),
	}
	d.maps.limit = maxMappedPeer
	d.ctx, d.cancel = context.WithCancel(context.Background())
	rand.Read(d.gid[:]) // never fails
	if d.userNS, err = userNamespace(); err != nil {
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
	provider *Provider
	logger   *slog.Logger
	gid      verbs.GID
	userNS   uint64
	keys     *keys
	maps     mappings
	async    asyncQueue
	done     chan struct{}   // closed by Close
	ctx      context.Context // ends with Close
	cancel   context.CancelFunc
	fileIDs  atomic.Uint32 // the last one that was given away
	spinning atomic.Int32  // goroutines that look for work without sleeping
	bans     sync.Map      // GIDs of processes that share no memory with this one any more

	listeners []*net.UnixListener
	socket    string         // the name of the first one, in the abstract namespace
	hasPath   bool           // the second one is in Options.Dir, by the same name
	unproven  unproven       // accepted connections without a proof
	running   sync.WaitGroup // goroutines of listeners and of connections that prove themselves

	mu      sync.Mutex // guards the fields below
	closed  bool
	waiting waiter
	pds     map[*pd]struct{}
	cqs     map[*cq]struct{}
	qps     map[verbs.QPN]*qp
	mrs     int
	windows int
}

const name = DeviceName // of every opened device, in errors

// random32 returns a cryptographically random number.
func random32() uint32 {
	var b [4]byte
	rand.Read(b[:]) // never fails
	return binary.NativeEndian.Uint32(b[:])
}

// usableLocked returns an error if the device is closed.
func (d *device) usableLocked(op string) error {
	if d.closed {
		return verbs.Errorf(op, name, verbs.ErrClosed, "the device is closed")
	}
	return nil
}

// Info implements verbs.Device.
func (d *device) Info() verbs.DeviceInfo { return info() }

// Port implements verbs.Device.
func (d *device) Port(number uint8) (verbs.PortInfo, error) {
	if err := d.checkPort("query port", number); err != nil {
		return verbs.PortInfo{}, err
	}
	return verbs.PortInfo{
		State: verbs.PortActive, Link: verbs.LinkShared, ActiveMTU: verbs.MTU4096, MaxMTU: verbs.MTU4096,
		MaxMessage: maxMessage, GIDs: 1, PKeys: 1,
	}, nil
}

// GIDs implements verbs.Device.
func (d *device) GIDs(number uint8) ([]verbs.GIDEntry, error) {
	if err := d.checkPort("list GIDs", number); err != nil {
		return nil, err
	}
	return []verbs.GIDEntry{{Index: 0, GID: d.gid, Type: verbs.GIDTypeProcess}}, nil
}

func (d *device) checkPort(op string, port uint8) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.usableLocked(op); err != nil {
		return err
	}
	if port != onlyPort {
		return verbs.Errorf(op, fmt.Sprintf("%s port %d", name, port), verbs.ErrNotFound, "the only port is %d", onlyPort)
	}
	return nil
}

// AllocPD implements verbs.Device.
func (d *device) AllocPD() (verbs.PD, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.usableLocked("allocate PD"); err != nil {
		return nil, err
	}
	if len(d.pds) >= maxPDs {
		return nil, verbs.Errorf("allocate PD", name, verbs.ErrInvalid, "the device's limit of %d is reached", len(d.pds))
	}
	p := &pd{dev: d}
	d.pds[p] = struct{}{}
	return p, nil
}

// CreateCQ implements verbs.Device.
func (d *device) CreateCQ(c verbs.CQConfig) (verbs.CQ, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	const op = "create CQ"
	if err := d.usableLocked(op); err != nil {
		return nil, err
	}
	switch {
	case c.Size < 1 || c.Size > maxCQE:
		return nil, verbs.Errorf(op, name, verbs.ErrInvalid, "size %d is not in the range of 1 to %d", c.Size, maxCQE)
	case len(d.cqs) >= maxCQs:
		return nil, verbs.Errorf(op, name, verbs.ErrInvalid, "the device's limit of %d is reached", len(d.cqs))
	}
	q := newCQ(d, c.Size)
	d.cqs[q] = struct{}{}
	return q, nil
}

// find returns the queue pair of a number, nil for none.
func (d *device) find(n verbs.QPN) *qp {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.qps[n]
}

// NextEvent implements verbs.Device.
func (d *device) NextEvent(ctx context.Context) (verbs.AsyncEvent, error) {
	d.mu.Lock()
	closed, began := d.closed, !d.closed && d.waiting.begin()
	d.mu.Unlock()
	switch {
	case closed:
		return verbs.AsyncEvent{}, verbs.Errorf("next event", name, verbs.ErrClosed, "the device is closed")
	case !began:
		return verbs.AsyncEvent{}, verbs.Errorf("next event", name, verbs.ErrBusy, "another goroutine waits")
	}
	e, err := d.nextEvent(ctx)
	d.mu.Lock()
	d.waiting.end()
	d.mu.Unlock()
	return e, err
}

func (d *device) nextEvent(ctx context.Context) (verbs.AsyncEvent, error) {
	for {
		if err := ctx.Err(); err != nil {
			return verbs.AsyncEvent{}, err
		}
		if e, ok := d.async.pop(); ok {
			return e, nil
		}
		select {
		case <-d.async.wake:
		case <-ctx.Done():
			return verbs.AsyncEvent{}, ctx.Err()
		case <-d.done:
			return verbs.AsyncEvent{}, verbs.Errorf("next event", name, verbs.ErrClosed, "the device was closed")
		}
	}
}

// Counts implements verbs.Device.
func (d *device) Counts() verbs.Counts {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.countsLocked()
}

func (d *device) countsLocked() verbs.Counts {
	return verbs.Counts{PDs: len(d.pds), MRs: d.mrs, CQs: len(d.cqs), QPs: len(d.qps), Windows: d.windows}
}

// Close implements verbs.Device.
func (d *device) Close() error {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return nil
	}
	if c := d.countsLocked(); c != (verbs.Counts{}) {
		d.mu.Unlock()
		return verbs.Errorf("close", name, verbs.ErrBusy, "still open: %d PDs, %d MRs, %d CQs, %d QPs, %d windows",
			c.PDs, c.MRs, c.CQs, c.QPs, c.Windows)
	}
	d.closed = true
	returned := d.waiting.returns()
	d.mu.Unlock()
	close(d.done)
	d.cancel()
	for _, l := range d.listeners {
		l.Close() //nolint:errcheck // it cannot be used any more
	}
	if returned != nil {
		<-returned
	}
	d.running.Wait()
	return nil
}
