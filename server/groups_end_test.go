package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/collective"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// stoppable is an address in front of a server, whose process can be stopped: connections stay, the
// host accepts and acknowledges what comes, and nothing is answered.
type stoppable struct {
	l       net.Listener
	server  atomic.Value // its address
	stopped chan struct{}
	ended   context.Context
	end     context.CancelFunc // closes all connections
	work    sync.WaitGroup
}

func newStoppable(t *testing.T) *stoppable {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended, end := context.WithCancel(context.Background())
	p := &stoppable{l: l, stopped: make(chan struct{}), ended: ended, end: end}
	p.work.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			p.work.Go(func() { p.forward(in) })
		}
	})
	t.Cleanup(func() {
		end()
		l.Close()
		p.work.Wait()
	})
	return p
}

func (p *stoppable) forward(in net.Conn) {
	defer in.Close()
	address, _ := p.server.Load().(string)
	out, err := new(net.Dialer).DialContext(p.ended, "tcp", address)
	if err != nil {
		return
	}
	defer out.Close()
	defer context.AfterFunc(p.ended, func() { in.Close(); out.Close() })()
	done := make(chan struct{}, 2)
	for _, pair := range [][2]net.Conn{{in, out}, {out, in}} {
		p.work.Go(func() {
			_, _ = io.Copy(stoppableWriter{p, pair[1]}, pair[0])
			done <- struct{}{}
		})
	}
	<-done
}

func (p *stoppable) isStopped() bool {
	select {
	case <-p.stopped:
		return true
	default:
		return false
	}
}

// stoppableWriter writes nothing after the stop.
type stoppableWriter struct {
	p *stoppable
	w io.Writer
}

func (w stoppableWriter) Write(b []byte) (int, error) {
	if w.p.isStopped() {
		return len(b), nil
	}
	return w.w.Write(b)
}

// groupTown is three servers in a group.
type groupTown struct {
	*verbsTown
	fronts  []*stoppable
	servers []*Server
	groups  []*collective.Group
	change  func(*Config)
}

func newGroupTown(t *testing.T, transport string, peerTimeout time.Duration) *groupTown {
	t.Helper()
	w := &groupTown{verbsTown: newVerbsTown(t, 3), servers: make([]*Server, 3)}
	var addresses []string
	for range 3 {
		f := newStoppable(t)
		w.fronts = append(w.fronts, f)
		addresses = append(addresses, f.l.Addr().String())
	}
	var err error
	if w.spec, err = cluster.ParseSpec("worker=" + strings.Join(addresses, ",")); err != nil {
		t.Fatal(err)
	}
	w.change = func(c *Config) { c.Transport, c.Listen, c.PeerTimeout = transport, "127.0.0.1:0", peerTimeout }
	for i := range w.servers {
		w.begin(i)
	}
	w.groups = groupOf(t, 1, w.servers)
	return w
}

// begin starts a server, in place of one that is gone.
func (w *groupTown) begin(i int) {
	w.t.Helper()
	var s *Server
	c := w.settings(i, w.change)
	if c.Transport == "grpc" {
		var err error
		if s, err = Start(w.t.Context(), c, Options{}); err != nil {
			w.t.Fatal(err)
		}
	} else {
		v, err := StartVerbs(w.t.Context(), c, Options{Provider: w.provider(i)})
		if err != nil {
			w.t.Fatal(err)
		}
		s = v.Server
	}
	w.t.Cleanup(func() {
		gone, cancel := context.WithCancel(context.Background())
		cancel()
		_ = s.Close(gone)
	})
	w.fronts[i].server.Store(s.Addr().String())
	w.servers[i] = s
}

// dies ends a server without a word over gRPC.
func (w *groupTown) dies(i int) {
	s := w.servers[i]
	s.grpc.Stop()
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	_ = s.parts.stop(gone)
}

// stops ends all answers of a server.
func (w *groupTown) stops(i int) {
	close(w.fronts[i].stopped)
	for other := range w.servers {
		if other != i {
			w.fabric.Wires(fmt.Sprintf("host%d", i), fmt.Sprintf("host%d", other)).Cut()
		}
	}
}

// groupOperations are the operations of a group. The member that the faults are of has rank 1.
var groupOperations = map[string]func(context.Context, *collective.Group) error{
	"AllReduce": func(ctx context.Context, g *collective.Group) error {
		return withTensor(func(in *tensor.Tensor) error {
			out, err := g.AllReduce(ctx, in, collective.Add)
			if err == nil {
				out.Release()
			}
			return err
		})
	},
	"Gather": func(ctx context.Context, g *collective.Group) error {
		return withTensor(func(in *tensor.Tensor) error {
			out, err := g.Gather(ctx, in)
			if err == nil {
				out.Release()
			}
			return err
		})
	},
	"Broadcast to it": func(ctx context.Context, g *collective.Group) error {
		return withTensor(func(in *tensor.Tensor) error { return g.Broadcast(ctx, 0, in) })
	},
	"Broadcast by it": func(ctx context.Context, g *collective.Group) error {
		return withTensor(func(in *tensor.Tensor) error { return g.Broadcast(ctx, 1, in) })
	},
	"Barrier": func(ctx context.Context, g *collective.Group) error { return g.Barrier(ctx) },
}

func withTensor(f func(*tensor.Tensor) error) error {
	in, err := tensor.FromSlice(tensor.Vector(1000), make([]float32, 1000))
	if err != nil {
		return err
	}
	return f(in)
}

// TestAnErrorOfOneMemberEndsTheOperationAtAll: whatever happens to a member before or between its
// operations, the calls of the others return an error. Before there is nobody who takes what they
// give; between it may have given, and not taken.
func TestAnErrorOfOneMemberEndsTheOperationAtAll(t *testing.T) {
	faults := map[string]func(w *groupTown, cancel context.CancelFunc){
		"close":   func(w *groupTown, _ context.CancelFunc) { w.groups[1].Close() },
		"cancel":  func(_ *groupTown, cancel context.CancelFunc) { cancel() },
		"death":   func(w *groupTown, _ context.CancelFunc) { w.dies(1) },
		"restart": func(w *groupTown, _ context.CancelFunc) { w.dies(1); w.begin(1) },
		"stop":    func(w *groupTown, _ context.CancelFunc) { w.stops(1) },
	}
	for _, transport := range []string{"grpc", "verbs"} {
		for operation, run := range groupOperations {
			if transport == "verbs" && operation != "AllReduce" && operation != "Broadcast to it" {
				continue
			}
			for fault, suffer := range faults {
				for _, rounds := range []int64{0, 20} {
					t.Run(fmt.Sprintf("%s/%s/%s/after %d", transport, operation, fault, rounds), func(t *testing.T) {
						t.Parallel()
						l := lifeOfAGroup{run: run, rounds: rounds, absent: rounds == 0 && fault != "cancel", suffer: suffer}
						// A machine may be so busy that the members lose each other before the fault.
						for timeout := 300 * time.Millisecond; !l.live(t, transport, timeout); timeout *= 4 {
							if timeout > time.Minute {
								t.Fatal("the members lose each other before the fault")
							}
						}
					})
				}
			}
		}
	}
}

// lifeOfAGroup is a group of three whose member 1 suffers a fault.
type lifeOfAGroup struct {
	run    func(context.Context, *collective.Group) error
	rounds int64 // operations of member 1 before the fault
	absent bool  // member 1 begins none
	suffer func(w *groupTown, cancel context.CancelFunc)
}

// live checks that the other members get an error. It returns false if an operation before the fault
// ended with Unavailable, for which the peer timeout is too short then.
func (l *lifeOfAGroup) live(t *testing.T, transport string, peerTimeout time.Duration) bool {
	t.Helper()
	w := newGroupTown(t, transport, peerTimeout)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var errs [3]chan error
	var done atomic.Int64
	reached, early := make(chan struct{}), make(chan struct{})
	if l.rounds == 0 {
		close(reached)
	}
	for i, g := range w.groups {
		errs[i] = make(chan error, 1)
		of := t.Context()
		if i == 1 {
			if of = ctx; l.absent {
				errs[i] <- nil
				continue
			}
			if l.rounds == 0 {
				cancel()
			}
		}
		go func() {
			for i != 1 || !w.fronts[1].isStopped() {
				if err := l.run(of, g); err != nil {
					errs[i] <- err
					if i == 1 {
						close(early)
					}
					return
				}
				if i == 1 && done.Add(1) == l.rounds {
					close(reached)
				}
			}
			errs[i] <- nil
		}()
	}
	select {
	case <-reached:
	case <-early:
	case <-time.After(soon):
		t.Fatalf("%d operations before the fault in %v", done.Load(), soon)
	}
	lived := done.Load() >= l.rounds
	if lived {
		l.suffer(w, cancel)
	}
	lost := false
	for _, i := range []int{0, 2} {
		err := wait(t, errs[i], fmt.Sprintf("the error of rank %d", i))
		if status.CodeOf(err) == status.Unknown {
			t.Errorf("rank %d: %v", i, err)
		}
		lost = lost || status.CodeOf(err) == status.Unavailable
	}
	w.groups[1].Close()
	err := wait(t, errs[1], "the end of rank 1") // what it is depends on the moment
	if lost = lost || status.CodeOf(err) == status.Unavailable; !lived && !lost {
		t.Fatalf("an operation before the fault: %v", err)
	}
	return lived
}

// TestASlowMemberIsWaitedFor: a member that begins an operation after several peer timeouts is not
// declared dead: its process answers.
func TestASlowMemberIsWaitedFor(t *testing.T) {
	for operation, run := range groupOperations {
		t.Run(operation, func(t *testing.T) {
			t.Parallel()
			// A machine may be so busy that a process does not answer within a short timeout.
			for timeout := time.Second; ; timeout *= 4 {
				w := newGroupTown(t, "grpc", timeout)
				errs := together(3, func(i int) error {
					if i == 1 {
						<-time.After(3 * timeout)
					}
					return run(t.Context(), w.groups[i])
				})
				err := errors.Join(errs...)
				if err == nil {
					return
				}
				lost := slices.ContainsFunc(errs, func(err error) bool { return status.CodeOf(err) == status.Unavailable })
				if !lost || timeout > 10*time.Second {
					t.Fatalf("with a peer timeout of %v: %v", timeout, err)
				}
			}
		})
	}
}
