package bench

import (
	"context"
	"errors"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tryst-rdma/tryst/internal/discovery"
	"github.com/tryst-rdma/tryst/server"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/verbs"
	libibverbs "github.com/tryst-rdma/tryst/verbs/cgo"
)

// echoCommand makes the second process send back what it receives, until Stop.
type echoCommand struct {
	Peer  verbs.Endpoint `json:"peer"` // of this process
	Event bool           `json:"event"`
	Stop  bool           `json:"stop"`
}

// loop is one end of sends to and fro: what ib_send_lat does, in Go.
type loop struct {
	event  bool
	device verbs.Device
	pd     verbs.PD
	memory []byte   // where messages arrive, mapped and not of the Go heap
	mr     verbs.MR // of memory
	cq     verbs.CQ
	qp     verbs.QP
	wcs    [2]verbs.WC
	own    verbs.Endpoint
	path   verbs.Path
}

// newLoop makes a queue pair whose receive is posted.
func newLoop(c server.RDMA, event bool) (_ *loop, err error) {
	l := &loop{event: event}
	defer func() {
		if err != nil {
			err = errors.Join(status.From(err).WithPrefix(GoLoop), l.close())
		}
	}()
	host, err := discovery.Host()
	if err != nil {
		return nil, err
	}
	inventory, err := host.Read()
	if err != nil {
		return nil, err
	}
	choice, err := chosen(inventory, c)
	if err != nil {
		return nil, err
	}
	if l.device, err = libibverbs.New(libibverbs.Options{}).Open(choice.Device); err != nil {
		return nil, err
	}
	port, err := l.device.Port(choice.Port)
	if err != nil {
		return nil, err
	}
	if l.pd, err = l.device.AllocPD(); err != nil {
		return nil, err
	}
	if l.memory, err = unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE); err != nil {
		return nil, os.NewSyscallError("mmap", err)
	}
	if l.mr, err = l.pd.RegisterMemory(l.memory, verbs.AccessLocalWrite); err != nil {
		return nil, err
	}
	if l.cq, err = l.device.CreateCQ(verbs.CQConfig{Size: 2 * loopDepth}); err != nil {
		return nil, err
	}
	l.qp, err = l.pd.CreateQP(verbs.QPConfig{SendCQ: l.cq, RecvCQ: l.cq, MaxSend: loopDepth, MaxRecv: loopDepth, MaxInline: smallSize})
	if err != nil {
		return nil, err
	}
	l.path = verbs.Path{Port: choice.Port, SGIDIndex: uint8(choice.GIDIndex), MTU: port.ActiveMTU, Timeout: loopTimeout, Retry: 6, RNRRetry: 6, MinRNRTimer: verbs.DefaultMinRNRTimer} //nolint:gosec // a table has 255 at most
	if err := l.path.Init(l.qp); err != nil {
		return nil, err
	}
	for range loopDepth / 2 {
		if err := l.receive(); err != nil {
			return nil, err
		}
	}
	l.own = l.qp.Endpoint()
	l.own.GID, l.own.LID = choice.GID, port.LID
	return l, nil
}

const (
	// loopDepth is the room of each queue of a loop, which has one message under
	// way.
	loopDepth = 8
	// loopTimeout is the code of 268 ms (verbs.TimeoutDuration).
	loopTimeout = 16
)

func (l *loop) receive() error {
	_, err := l.qp.PostRecv([]verbs.RecvWR{{SGL: []verbs.SGE{{Addr: l.mr.Addr(), Length: smallSize, LKey: l.mr.LKey()}}}})
	return err
}

// connect leads it to the other end.
func (l *loop) connect(peer verbs.Endpoint) error { return l.path.Connect(l.qp, l.own.PSN, peer) }

// turn waits for a message, posts the receive again, and, with send, first or then
// sends one.
func (l *loop) turn(ctx context.Context, first bool) error {
	if first {
		if err := l.send(); err != nil {
			return err
		}
	}
	if err := l.await(ctx); err != nil {
		return err
	}
	if err := l.receive(); err != nil || first {
		return err
	}
	return l.send()
}

func (l *loop) send() error {
	_, err := l.qp.PostSend([]verbs.SendWR{{Op: verbs.OpSend, Signaled: true, Inline: make([]byte, smallSize)}})
	return err
}

// await waits until a message has come.
func (l *loop) await(ctx context.Context) error {
	for empty, armed := 0, false; ; empty++ {
		n, err := l.cq.Poll(l.wcs[:])
		if err != nil {
			return err
		}
		came := false
		for i := range l.wcs[:n] {
			if l.wcs[i].Status != verbs.StatusOK {
				return status.Errorf(status.Unavailable, "%s: %v: %s", GoLoop, l.wcs[i].Status, l.wcs[i].Status.Cause())
			}
			came = came || l.wcs[i].Op == verbs.WCRecv
		}
		switch {
		case came:
			return nil
		case n > 0:
		case !l.event:
			if empty%1000 == 999 {
				if ctx.Err() != nil {
					return context.Cause(ctx)
				}
				runtime.Gosched()
			}
		case armed:
			if err := l.cq.Wait(ctx); err != nil {
				return err
			}
			armed = false
		default:
			if err := l.cq.Arm(false); err != nil {
				return err
			}
			armed = true
		}
	}
}

func (l *loop) close() (err error) {
	if l.qp != nil {
		err = l.qp.Close()
	}
	if l.cq != nil {
		err = errors.Join(err, l.cq.Close())
	}
	if l.mr != nil {
		err = errors.Join(err, l.mr.Close())
	}
	if l.memory != nil {
		err = errors.Join(err, os.NewSyscallError("munmap", unix.Munmap(l.memory)))
	}
	if l.pd != nil {
		err = errors.Join(err, l.pd.Close())
	}
	if l.device != nil {
		err = errors.Join(err, l.device.Close())
	}
	return err
}

// goLoop is the loop as a side: it scores round trips in a second, by their
// median. Each run has a second process of its own.
func (s *suite) goLoop(event bool) side {
	return func(ctx context.Context, d time.Duration) (r run, err error) {
		client := s.client().WithDefaults()
		c, ctx, err := startChild(ctx, s.Command, setup{Profile: s.Profile, Pin: s.second, verbsSetup: verbsSetup{RDMA: s.peerRDMA(client.RDMA)}})
		if err != nil {
			return r, err
		}
		defer c.close()
		l, err := newLoop(client.RDMA, event)
		if err != nil {
			return r, err
		}
		defer func() { err = errors.Join(err, l.close()) }()
		st, err := c.obey(ctx, command{Echo: &echoCommand{Peer: l.own, Event: event}})
		if err != nil {
			return r, ended(ctx, err)
		}
		if st.Echo == nil {
			return r, status.New(status.Internal, "the second process does not say where it echoes")
		}
		if err := l.connect(*st.Echo); err != nil {
			return r, err
		}
		r, err = counted(load(1, 1, func(ctx context.Context, _, _ int) error { return l.turn(ctx, true) }))(ctx, d)
		if err == nil {
			err = r.byMedian()
		}
		if _, e := c.obey(ctx, command{Echo: &echoCommand{Stop: true}}); err == nil {
			err = e
		}
		return r, ended(ctx, err)
	}
}

// echo is the second process's end of a loop.
type echo struct {
	loop *loop
	stop context.CancelFunc
	done chan struct{}
}

func startEcho(c server.RDMA, cmd *echoCommand) (*echo, error) {
	l, err := newLoop(c, cmd.Event)
	if err != nil {
		return nil, err
	}
	if err := l.connect(cmd.Peer); err != nil {
		return nil, errors.Join(err, l.close())
	}
	ctx, stop := context.WithCancel(context.Background())
	e := &echo{loop: l, stop: stop, done: make(chan struct{})}
	go func() {
		defer close(e.done)
		for l.turn(ctx, false) == nil { // the other end tells what was wrong
		}
	}()
	return e, nil
}

func (e *echo) close() error {
	e.stop()
	<-e.done
	return e.loop.close()
}
