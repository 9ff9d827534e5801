package tcp

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/tcp/internal/frame"
)

// device implements verbs.Device and Acceptor.
type device struct {
	name      string
	options   *Options
	log       *slog.Logger
	start     time.Time // origin of the machines' time
	gid       verbs.GID
	addresses []string // at which peers reach the device
	listener  net.Listener
	keys      *keys
	async     asyncQueue
	done      chan struct{}  // closed by Close
	wg        sync.WaitGroup // all goroutines of the device

	readBuffers, stagingBuffers sync.Pool // of *[readBytes]byte and *[stagingBytes]byte

	mu      sync.Mutex // guards the fields below
	closed  bool
	waiting waiter
	pds     map[*pd]struct{}
	cqs     map[*cq]struct{}
	qps     map[*qp]struct{}
	mrs     int
	windows int

	qpMu     sync.RWMutex // guards byNumber; taken last
	byNumber map[verbs.QPN]*qp

	acceptMu sync.Mutex // guards the fields below; taken last
	unproven map[net.Conn]struct{}
	deaf     bool // takes no connections any more
}

func newDevice(o *Options) (*device, error) {
	d := &device{
		name: deviceName, options: o, log: o.Logger, start: time.Now(), keys: newKeys(), async: asyncQueue{wake: make(chan struct{}, 1)},
		done: make(chan struct{}), pds: make(map[*pd]struct{}), cqs: make(map[*cq]struct{}), qps: make(map[*qp]struct{}),
		byNumber: make(map[verbs.QPN]*qp), unproven: make(map[net.Conn]struct{}),
	}
	d.readBuffers.New = func() any { return new([readBytes]byte) }
	d.stagingBuffers.New = func() any { return new([stagingBytes]byte) }
	rand.Read(d.gid[:]) // never fails (crypto/rand)
	if err := d.listen(); err != nil {
		return nil, err
	}
	check := frame.Endpoint{Addresses: d.addresses}
	if err := check.Check(); err != nil {
		if d.listener != nil {
			d.listener.Close()
		}
		return nil, verbs.Errorf("open", d.name, verbs.ErrInvalid, "Options.Listen: %v", err)
	}
	if d.listener != nil {
		d.wg.Go(d.serve)
	}
	return d, nil
}

// listen opens the listener of Options.ListenOn, and collects the addresses for peers.
func (d *device) listen() (err error) {
	d.addresses = d.options.Listen
	if d.options.ListenOn == "" {
		return nil
	}
	if d.listener, err = net.Listen("tcp", d.options.ListenOn); err != nil {
		return &verbs.Error{Op: "open", Object: d.name, Err: err, Hint: "Options.ListenOn names the address"}
	}
	at, ok := d.listener.Addr().(*net.TCPAddr)
	if !ok || len(d.addresses) == 0 && !at.IP.IsUnspecified() {
		d.addresses = []string{d.listener.Addr().String()}
		return nil
	}
	d.addresses = nil
	for _, host := range d.options.Listen {
		d.addresses = append(d.addresses, net.JoinHostPort(host, fmt.Sprint(at.Port)))
	}
	if len(d.addresses) == 0 {
		d.listener.Close()
		return verbs.Errorf("open", d.name, verbs.ErrInvalid, "%s listens on all addresses, so Options.Listen must name those that peers dial", d.options.ListenOn)
	}
	return nil
}

// serve accepts connections until Close.
func (d *device) serve() {
	for {
		c, err := d.listener.Accept()
		if err == nil {
			d.Accept(c)
			continue
		}
		if errors.Is(err, net.ErrClosed) {
			return
		}
		pause := time.NewTimer(acceptPause) // no file descriptors are left, for example
		select {
		case <-pause.C:
		case <-d.done:
			pause.Stop()
			return
		}
	}
}

// now returns the time of the machines.
func (d *device) now() time.Duration { return time.Since(d.start) }

// usableLocked returns an error if the device is closed.
func (d *device) usableLocked(op string) error {
	if d.closed {
		return verbs.Errorf(op, d.name, verbs.ErrClosed, "the device is closed")
	}
	return nil
}

// number gives a queue pair a random number.
func (d *device) number(q *qp) {
	d.qpMu.Lock()
	defer d.qpMu.Unlock()
	for {
		var b [4]byte
		rand.Read(b[:]) // never fails (crypto/rand)
		// 0 and 1 are the management queue pairs, 0xffffff is multicast.
		q.number = verbs.QPN(2 + binary.NativeEndian.Uint32(b[:])%0xfffffd)
		if d.byNumber[q.number] == nil {
			d.byNumber[q.number] = q
			return
		}
	}
}

func (d *device) forget(q *qp) {
	d.qpMu.Lock()
	defer d.qpMu.Unlock()
	delete(d.byNumber, q.number)
}

// find returns the queue pair with a number, or nil.
func (d *device) find(n verbs.QPN) *qp {
	d.qpMu.RLock()
	defer d.qpMu.RUnlock()
	return d.byNumber[n]
}

// Info implements verbs.Device.
func (*device) Info() verbs.DeviceInfo { return info() }

// Port implements verbs.Device. The port is always active; its MTU means nothing.
func (d *device) Port(number uint8) (verbs.PortInfo, error) {
	if err := d.checkPort("query port", number); err != nil {
		return verbs.PortInfo{}, err
	}
	return verbs.PortInfo{
		State: verbs.PortActive, Link: verbs.LinkTCP, ActiveMTU: verbs.MTU4096, MaxMTU: verbs.MTU4096,
		MaxMessage: frame.MaxMessage, GIDs: onlyGID + 1, PKeys: 1,
	}, nil
}

// GIDs implements verbs.Device. The only GID names the opened device and is no address.
func (d *device) GIDs(number uint8) ([]verbs.GIDEntry, error) {
	if err := d.checkPort("list GIDs", number); err != nil {
		return nil, err
	}
	return []verbs.GIDEntry{{Index: onlyGID, GID: d.gid, Type: verbs.GIDTypeProcess}}, nil
}

func (d *device) checkPort(op string, port uint8) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.usableLocked(op); err != nil {
		return err
	}
	if port != onlyPort {
		return verbs.Errorf(op, fmt.Sprintf("%s port %d", d.name, port), verbs.ErrNotFound, "the only port is %d", onlyPort)
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
		return nil, verbs.Errorf("allocate PD", d.name, verbs.ErrInvalid, "the device's limit of %d is reached", len(d.pds))
	}
	p := &pd{dev: d, domain: domain{keys: d.keys}}
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
		return nil, verbs.Errorf(op, d.name, verbs.ErrInvalid, "size %d is not in the range of 1 to %d", c.Size, maxCQE)
	case len(d.cqs) >= maxCQs:
		return nil, verbs.Errorf(op, d.name, verbs.ErrInvalid, "the device's limit of %d is reached", len(d.cqs))
	}
	q := newCQ(d, c.Size)
	d.cqs[q] = struct{}{}
	return q, nil
}

// NextEvent implements verbs.Device.
func (d *device) NextEvent(ctx context.Context) (verbs.AsyncEvent, error) {
	d.mu.Lock()
	closed, began := d.closed, !d.closed && d.waiting.begin()
	d.mu.Unlock()
	switch {
	case closed:
		return verbs.AsyncEvent{}, verbs.Errorf("next event", d.name, verbs.ErrClosed, "the device is closed")
	case !began:
		return verbs.AsyncEvent{}, verbs.Errorf("next event", d.name, verbs.ErrBusy, "another goroutine waits")
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
			return verbs.AsyncEvent{}, verbs.Errorf("next event", d.name, verbs.ErrClosed, "the device was closed")
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
		return verbs.Errorf("close", d.name, verbs.ErrBusy, "still open: %d PDs, %d MRs, %d CQs, %d QPs, %d windows",
			c.PDs, c.MRs, c.CQs, c.QPs, c.Windows)
	}
	d.closed = true
	returned := d.waiting.returns()
	d.mu.Unlock()
	close(d.done)
	if returned != nil {
		<-returned
	}
	if d.listener != nil {
		d.listener.Close()
	}
	d.refuseAll()
	d.wg.Wait() // readers and writers of closed queue pairs end by themselves
	return nil
}
