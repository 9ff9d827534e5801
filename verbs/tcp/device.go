package tcp

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/internal/soft"
	"github.com/tryst-rdma/tryst/verbs/tcp/internal/frame"
)

// device implements verbs.Device and Acceptor.
type device struct {
	soft.Device
	options   *Options
	log       *slog.Logger
	start     time.Time // origin of the machines' time
	gid       verbs.GID
	addresses []string // at which peers reach the device
	listener  net.Listener
	wg        sync.WaitGroup // all goroutines of the device

	spinning atomic.Int32 // readers that spin

	readBuffers, stagingBuffers sync.Pool // of *[readBytes]byte and *[stagingBytes]byte

	qps map[*qp]struct{} // open ones, guarded by Device.Mu

	qpMu     sync.RWMutex // guards byNumber; taken last
	byNumber map[verbs.QPN]*qp

	acceptMu sync.Mutex // guards the fields below; taken last
	unproven map[net.Conn]struct{}
	deaf     bool // takes no connections any more
}

func newDevice(o *Options) (*device, error) {
	d := &device{
		options: o, log: o.Logger, start: time.Now(), qps: make(map[*qp]struct{}),
		byNumber: make(map[verbs.QPN]*qp), unproven: make(map[net.Conn]struct{}),
	}
	d.Init(deviceName, soft.Limits(), soft.Hooks{RegionClosed: d.regionClosed, WindowClosed: windowClosed})
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
		return nil, verbs.Errorf("open", d.Name(), verbs.ErrInvalid, "Options.Listen: %v", err)
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
		return &verbs.Error{Op: "open", Object: d.Name(), Err: err, Hint: "Options.ListenOn names the address"}
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
		return verbs.Errorf("open", d.Name(), verbs.ErrInvalid, "%s listens on all addresses, so Options.Listen must name those that peers dial", d.options.ListenOn)
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
		case <-d.Done():
			pause.Stop()
			return
		}
	}
}

// now returns the time of the machines.
func (d *device) now() time.Duration { return time.Since(d.start) }

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
	if err := d.CheckPort("query port", number); err != nil {
		return verbs.PortInfo{}, err
	}
	return verbs.PortInfo{
		State: verbs.PortActive, Link: verbs.LinkTCP, ActiveMTU: verbs.MTU4096, MaxMTU: verbs.MTU4096,
		MaxMessage: frame.MaxMessage, GIDs: onlyGID + 1, PKeys: 1,
	}, nil
}

// GIDs implements verbs.Device. The only GID names the opened device and is no address.
func (d *device) GIDs(number uint8) ([]verbs.GIDEntry, error) {
	if err := d.CheckPort("list GIDs", number); err != nil {
		return nil, err
	}
	return []verbs.GIDEntry{{Index: onlyGID, GID: d.gid, Type: verbs.GIDTypeProcess}}, nil
}

// Close implements verbs.Device.
func (d *device) Close() error {
	ended, err := d.End()
	if !ended {
		return err
	}
	if d.listener != nil {
		d.listener.Close()
	}
	d.refuseAll()
	d.wg.Wait() // readers and writers of closed queue pairs end by themselves
	return nil
}

// CreateCQ implements verbs.Device. A goroutine that polls the queue reads the sockets of its queue pairs.
func (d *device) CreateCQ(c verbs.CQConfig) (verbs.CQ, error) { return d.NewDrivenCQ(c) }
