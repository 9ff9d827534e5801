package rendezvous_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// direct is a Remoter whose peers are managers of this process: it calls them.
type direct struct {
	mu    sync.Mutex
	peers map[cluster.Task]*rendezvous.Manager
	calls atomic.Int32
	wg    sync.WaitGroup
}

// transfer is a Transfer that ends with a call of end.
type transfer struct {
	args   rendezvous.Args
	done   rendezvous.DoneFunc // nil: Wait has the outcome
	ended  chan ending         // of one
	cancel func(error)
}

type ending struct {
	v   rendezvous.Value
	err error
}

func newTransfer(args rendezvous.Args, done rendezvous.DoneFunc, cancel func(error)) *transfer {
	return &transfer{args, done, make(chan ending, 1), cancel}
}

// end may be called once, or Wait or who looks after done sees more of it.
func (t *transfer) end(v rendezvous.Value, err error) {
	if t.done != nil {
		t.done(v, t.args, err)
	} else {
		t.ended <- ending{v, err}
	}
}

func (t *transfer) Wait(ctx context.Context) (rendezvous.Value, error) {
	select {
	case e := <-t.ended:
		return e.v, e.err
	case <-ctx.Done():
		t.cancel(context.Cause(ctx))
		e := <-t.ended
		return e.v, e.err
	}
}

func (t *transfer) Cancel(err error) { t.cancel(err) }

func (d *direct) RecvFromRemoteAsync(step int64, k rendezvous.Key, args rendezvous.Args, done rendezvous.DoneFunc) rendezvous.Transfer {
	ctx, cancel := context.WithCancelCause(context.Background())
	x := newTransfer(args, done, cancel)
	d.calls.Add(1)
	d.mu.Lock()
	peer := d.peers[k.Src().Task]
	d.mu.Unlock()
	d.wg.Go(func() {
		defer cancel(nil)
		if peer == nil {
			x.end(rendezvous.Value{}, status.Errorf(status.Unavailable, "no peer %v", k.Src().Task))
			return
		}
		x.end(peer.RecvLocal(ctx, step, k))
	})
	return x
}

// initialized returns a step of ps.
func initialized(t testing.TB, r rendezvous.Remoter) *rendezvous.BaseRemote {
	t.Helper()
	b := rendezvous.NewBaseRemote(1, r)
	if err := b.Initialize(session(t)); err != nil {
		t.Fatal(err)
	}
	return b
}

// remoteKey is of a value that ps1 sends to ps.
func remoteKey(t testing.TB, name string) rendezvous.Key { return between(t, ps1, ps, name) }

// hanging is a transport whose peer never answers.
type hanging struct{ ended chan error }

func (h *hanging) RecvFromRemoteAsync(_ int64, _ rendezvous.Key, args rendezvous.Args, done rendezvous.DoneFunc) rendezvous.Transfer {
	x := newTransfer(args, done, nil)
	x.cancel = func(err error) {
		go func() {
			if h.ended != nil {
				h.ended <- err
			}
			x.end(rendezvous.Value{}, status.New(status.Cancelled, "the transport's own word"))
		}()
	}
	return x
}

func TestB1DeferredUntilInitialize(t *testing.T) {
	c := counted(t)
	b := rendezvous.NewBaseRemote(1, nil)
	defer b.Close()
	var p [3]*pending
	for i := range p {
		p[i] = newPending()
		b.RecvLocalAsync(t.Context(), key(t, "a"), p[i].done)
	}
	foreign := newPending()
	b.RecvLocalAsync(t.Context(), remoteKey(t, "a"), foreign.done)
	ctx, cancel := context.WithCancel(t.Context())
	cancelled := newPending()
	b.RecvLocalAsync(ctx, key(t, "a"), cancelled.done)
	cancel()
	mustBeDerived(t, cancelled.wait(t).err, status.Cancelled, "RecvAsync of edge ")
	b.RecvLocalAsync(ctx, key(t, "a"), cancelled.done)
	mustBeDerived(t, (<-cancelled.c).err, status.Cancelled, "RecvAsync of edge ")
	if !foreign.waits() {
		t.Fatal("a deferred receive ran")
	}

	if err := b.Initialize(session(t)); err != nil {
		t.Fatal(err)
	}
	mustBe(t, foreign.wait(t).err, status.InvalidArgument, "(src)")
	late := newPending()
	b.RecvLocalAsync(t.Context(), key(t, "a"), late.done)
	for i := range 4 {
		c.mustSend(t, b, key(t, "a"), i)
	}
	for i := range p {
		p[i].mustGet(t, i)
	}
	late.mustGet(t, 3)
}

// A receive that comes from within a deferred one keeps its place too.
func TestB1OrderWhileInitializing(t *testing.T) {
	c := counted(t)
	b := rendezvous.NewBaseRemote(1, nil)
	defer b.Close()
	inner, second := newPending(), newPending()
	b.RecvLocalAsync(t.Context(), remoteKey(t, "x"), func(_ rendezvous.Value, _ rendezvous.Args, err error) {
		mustBe(t, err, status.InvalidArgument, "(src)")
		b.RecvLocalAsync(t.Context(), key(t, "a"), inner.done)
		if err := b.Initialize(session(t)); err != nil {
			t.Error(err)
		}
	})
	b.RecvLocalAsync(t.Context(), key(t, "a"), second.done)
	if err := b.Initialize(session(t)); err != nil {
		t.Fatal(err)
	}
	c.mustSend(t, b, key(t, "a"), 1)
	second.mustGet(t, 1)
	c.mustSend(t, b, key(t, "a"), 2)
	inner.mustGet(t, 2)
}

func TestB1AbortEndsDeferred(t *testing.T) {
	b := rendezvous.NewBaseRemote(1, nil)
	before, after := newPending(), newPending()
	b.RecvLocalAsync(t.Context(), key(t, "a"), before.done)
	b.Abort(errBoom)
	before.mustFail(t, errBoom)
	b.RecvLocalAsync(t.Context(), key(t, "a"), after.done)
	if after.waits() {
		t.Fatal("a receive was deferred after the abort")
	}
	after.mustFail(t, errBoom)
	b.Close()
	for range 100 {
		b := rendezvous.NewBaseRemote(1, nil)
		ctx, cancel := context.WithCancel(t.Context())
		var p [4]*pending
		var wg sync.WaitGroup
		for i := range p {
			p[i] = newPending()
			wg.Go(func() { b.RecvLocalAsync(ctx, key(t, "a"), p[i].done) })
		}
		wg.Go(func() { b.Abort(errBoom) })
		wg.Go(cancel)
		wg.Wait()
		for i := range p {
			if o := p[i].wait(t); !errors.Is(o.err, errBoom) && !errors.Is(o.err, context.Canceled) {
				t.Fatal(o.err)
			}
		}
		b.Close()
	}
}

func TestB2InitializeTwice(t *testing.T) {
	b := initialized(t, nil)
	defer b.Close()
	if err := b.Initialize(session(t)); err != nil {
		t.Error(err)
	}
	err := b.Initialize(&rendezvous.Session{Task: device(t, ps1).Task})
	mustBe(t, err, status.Internal, "Double init! Worker names would have changed from /job:ps/replica:0/task:0 -> /job:ps/replica:0/task:1")
}

func TestB3DeviceChecks(t *testing.T) {
	c := counted(t)
	b := initialized(t, nil)
	defer b.Close()
	from1, to1 := between(t, ps1, ps, "a"), between(t, ps, ps1, "a")
	err := c.send(b, from1, 1)
	mustBe(t, err, status.InvalidArgument, "Invalid rendezvous key (src): "+from1.Describe()+" @ /job:ps/replica:0/task:0")
	want := "Invalid rendezvous key (dst): " + to1.Describe() + " @ /job:ps/replica:0/task:0"
	_, err = b.Recv(t.Context(), to1, noArgs)
	mustBe(t, err, status.InvalidArgument, want)
	mustBe(t, recvAsync(t.Context(), b, to1).wait(t).err, status.InvalidArgument, want)
	c.mustSend(t, b, to1, 2) // to a peer, who asks for it:
	p := newPending()
	b.RecvLocalAsync(t.Context(), to1, p.done)
	p.mustGet(t, 2)
	p = newPending()
	b.RecvLocalAsync(t.Context(), from1, p.done)
	mustBe(t, p.wait(t).err, status.InvalidArgument, "(src)")

	local := between(t, "", ps, "a") // an empty source is this host
	c.mustSend(t, b, local, 3)
	mustRecv(t, b, local, 3)
}

func TestB3bParsedNames(t *testing.T) {
	c := counted(t)
	b := rendezvous.NewBaseRemote(1, nil)
	defer b.Close()
	if err := b.Initialize(&rendezvous.Session{Task: device(t, ps1).Task}); err != nil {
		t.Fatal(err)
	}
	ten := "/job:ps/replica:0/task:10/device:CPU:0"
	mustBe(t, c.send(b, between(t, ten, ps1, "a"), 1), status.InvalidArgument, "(src)")

	// A legacy spelling is the same device.
	legacy := between(t, "/job:ps/replica:0/task:1/cpu:0", ps1, "a")
	c.mustSend(t, b, legacy, 2)
	mustRecv(t, b, legacy, 2)
}

func TestB4BeforeInitialize(t *testing.T) {
	c := counted(t)
	b := rendezvous.NewBaseRemote(1, nil)
	defer b.Close()
	const want = "ValidateDevices called before initialization."
	_, err := b.Recv(t.Context(), key(t, "a"), noArgs)
	mustBe(t, err, status.Internal, want)
	mustBe(t, recvAsync(t.Context(), b, key(t, "a")).wait(t).err, status.Internal, want)
	mustBe(t, c.send(b, key(t, "a"), 1), status.Internal, want)
	b.Abort(errBoom)
	if _, err := b.Recv(t.Context(), key(t, "a"), noArgs); !errors.Is(err, errBoom) {
		t.Error(err)
	}
}

func TestB5SameWorkerIsLocal(t *testing.T) {
	c := counted(t)
	d := &direct{}
	b := initialized(t, d)
	defer b.Close()
	c.mustSend(t, b, key(t, "a"), 1)
	mustRecv(t, b, key(t, "a"), 1)
	if n := d.calls.Load(); n != 0 {
		t.Errorf("%d remote receives for a local key", n)
	}
	recvAsync(t.Context(), b, remoteKey(t, "a")).mustFailWith(t, status.Unavailable, "no peer")
	_, err := b.Recv(t.Context(), remoteKey(t, "a"), noArgs)
	mustBe(t, err, status.Unavailable, "no peer")
	if n := d.calls.Load(); n != 2 {
		t.Errorf("%d remote receives, want 2", n)
	}
	d.wg.Wait()
}

func TestB5DeviceCopy(t *testing.T) {
	c := counted(t)
	var copies atomic.Int32
	s := session(t)
	s.Copy = func(_ context.Context, k rendezvous.Key, v rendezvous.Value, to rendezvous.Args, done func(*tensor.Tensor, error)) {
		copies.Add(1)
		if k.Edge() == "fails" {
			done(nil, status.New(status.Internal, "the copy engine is gone"))
			return
		}
		done(c.make(number(v)+100), nil)
	}
	b := rendezvous.NewBaseRemote(1, nil)
	if err := b.Initialize(s); err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	p := rendezvous.NewIntraProcess(s.Copy)
	defer p.Close()
	stream := rendezvous.Args{Device: "stream"}
	for _, r := range []rendezvous.Rendezvous{b, p} {
		for _, tc := range []struct {
			name, src, dst string
			send, recv     rendezvous.Args
			copied         bool
		}{
			{"CPU to CPU", ps, ps, noArgs, noArgs, false},
			{"CPU to CPU with contexts", ps, ps, stream, stream, false},
			{"GPU to CPU", gpu, ps, stream, noArgs, true},
			{"CPU to GPU", ps, gpu, noArgs, stream, true},
			{"GPU to GPU", gpu, gpu, stream, stream, true},
			{"host memory of a GPU", gpu, gpu, noArgs, noArgs, false},
			{"fails", gpu, ps, stream, noArgs, true},
		} {
			t.Run(fmt.Sprintf("%T %s", r, tc.name), func(t *testing.T) {
				k := between(t, tc.src, tc.dst, tc.name)
				send := func() {
					x := c.make(1)
					defer x.Release()
					if err := r.Send(k, tc.send, x, false); err != nil {
						t.Fatal(err)
					}
				}
				was := copies.Load()
				send()
				v, err := r.Recv(t.Context(), k, tc.recv)
				check := func(n int, err error) {
					switch want := map[bool]int{false: 1, true: 101}[tc.copied]; {
					case tc.name == "fails":
						mustBe(t, err, status.Internal, "engine")
					case err != nil:
						t.Error(err)
					case n != want:
						t.Errorf("received %d, want %d", n, want)
					}
				}
				n := 0
				if err == nil {
					n = take(v)
				}
				check(n, err)

				q := newPending()
				r.RecvAsync(t.Context(), k, tc.recv, q.done)
				send()
				o := q.wait(t)
				check(o.n, o.err)
				if got := copies.Load() - was; got != map[bool]int32{false: 0, true: 2}[tc.copied] {
					t.Errorf("%d copies", got)
				}
			})
		}
	}
}

func TestB5NoWayToCopy(t *testing.T) {
	c := counted(t)
	p := rendezvous.NewIntraProcess(nil)
	defer p.Close()
	k := between(t, gpu, ps, "a")
	x := c.make(1)
	defer x.Release()
	if err := p.Send(k, rendezvous.Args{Device: "stream"}, x, false); err != nil {
		t.Fatal(err)
	}
	_, err := p.Recv(t.Context(), k, noArgs)
	mustBe(t, err, status.Unimplemented, "no way to copy from "+gpu)
}

func (p *pending) mustFailWith(t testing.TB, code status.Code, text string) {
	t.Helper()
	mustBe(t, p.wait(t).err, code, text)
}

// registered counts how often a call is aborted.
type registered struct {
	n   atomic.Int32
	err error
}

func (r *registered) Abort(err error) { r.err = err; r.n.Add(1) }

func TestB6AbortMarksAndReachesAll(t *testing.T) {
	for _, code := range []status.Code{status.Cancelled, status.Aborted, status.Internal} {
		h := &hanging{ended: make(chan error, 1)}
		b := initialized(t, h)
		local := recvAsync(t.Context(), b, key(t, "a"))
		remote := recvAsync(t.Context(), b, remoteKey(t, "a"))
		var call registered
		if err := b.RegisterCall(&call); err != nil {
			t.Fatal(err)
		}
		b.Abort(status.New(code, "first"))
		b.Abort(status.New(status.DataLoss, "second"))
		for _, err := range []error{local.wait(t).err, remote.wait(t).err, <-h.ended, call.err, b.Err()} {
			mustBe(t, err, code, "first")
			if status.IsDerived(err) != (code != status.Internal) {
				t.Errorf("%v: derived is %v", err, status.IsDerived(err))
			}
		}
		if n := call.n.Load(); n != 1 {
			t.Errorf("the call was aborted %d times", n)
		}
		b.Close()
	}
}

func TestB7RegisterAfterAbort(t *testing.T) {
	d := &direct{}
	b := initialized(t, d)
	b.Abort(errBoom)
	var call registered
	if err := b.RegisterCall(&call); !errors.Is(err, errBoom) || !errors.Is(call.err, errBoom) {
		t.Errorf("RegisterCall gave %v, the call %v", err, call.err)
	}
	recvAsync(t.Context(), b, remoteKey(t, "a")).mustFail(t, errBoom)
	if n := d.calls.Load(); n != 0 {
		t.Errorf("an aborted step sent %d requests", n)
	}
	b.Close()
}

func TestB8RemoteCancel(t *testing.T) {
	b := initialized(t, &hanging{})
	defer b.Close()
	ctx, cancel := context.WithCancel(t.Context())
	p := recvAsync(ctx, b, remoteKey(t, "a"))
	cancel()
	mustBeDerived(t, p.wait(t).err, status.Cancelled, "RecvAsync of edge ")
	_, err := b.Recv(ctx, remoteKey(t, "a"), noArgs) // cancelled before
	mustBeDerived(t, err, status.Cancelled, "Recv of edge ")

	late, cancel := context.WithTimeout(t.Context(), 1)
	defer cancel()
	_, err = b.Recv(late, remoteKey(t, "a"), noArgs)
	mustBe(t, err, status.DeadlineExceeded, "Recv of "+remoteKey(t, "a").Describe())
}

// failing is a transport whose own error comes when a receive is cancelled.
type failing struct{}

func (failing) RecvFromRemoteAsync(_ int64, _ rendezvous.Key, args rendezvous.Args, done rendezvous.DoneFunc) rendezvous.Transfer {
	x := newTransfer(args, done, nil)
	x.cancel = func(error) { go x.end(rendezvous.Value{}, status.New(status.DataLoss, "the connection corrupts")) }
	return x
}

func TestB8RootCauseIsKept(t *testing.T) {
	b := initialized(t, failing{})
	defer b.Close()
	ctx, cancel := context.WithCancel(t.Context())
	p := recvAsync(ctx, b, remoteKey(t, "a"))
	cancel()
	p.mustFailWith(t, status.DataLoss, "the connection corrupts")
}

func TestB9DeregisterUnknownCall(t *testing.T) {
	b := initialized(t, nil)
	defer b.Close()
	var a, c registered
	b.DeregisterCall(&a)
	if err := b.RegisterCall(&c); err != nil {
		t.Fatal(err)
	}
	b.DeregisterCall(&a)
	b.DeregisterCall(&c)
	b.DeregisterCall(&c)
	b.Abort(errBoom)
	if c.n.Load() != 0 {
		t.Error("a call that had ended was aborted")
	}
}

// A receive without a cancellable context is aborted with the step like others.
func TestB13CallWithoutCancellation(t *testing.T) {
	b := initialized(t, &hanging{})
	p := recvAsync(context.Background(), b, remoteKey(t, "a"))
	b.Abort(errBoom)
	p.mustFail(t, errBoom)
	b.Close()
}

func TestNoTransport(t *testing.T) {
	b := initialized(t, nil)
	defer b.Close()
	_, err := b.Recv(t.Context(), remoteKey(t, "a"), noArgs)
	mustBe(t, err, status.FailedPrecondition, "no transport to reach /job:ps/replica:0/task:1")
}

// The callback of a remote receive may block, send, receive and abort, also of
// one that never reached the transport.
func TestContract2RemoteDoneMayBlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := counted(t)
		b := initialized(t, nil)
		got := -1
		b.RecvAsync(t.Context(), remoteKey(t, "a"), noArgs, func(rendezvous.Value, rendezvous.Args, error) {
			v, err := b.Recv(t.Context(), key(t, "go on"), noArgs)
			if err == nil {
				got = take(v)
			}
			b.Abort(errBoom)
		})
		synctest.Wait()
		c.mustSend(t, b, key(t, "go on"), 1)
		synctest.Wait()
		b.Close()
		if got != 1 || !errors.Is(b.Err(), errBoom) {
			t.Errorf("received %d, the step ended with %v", got, b.Err())
		}
	})
}

func TestCheckSource(t *testing.T) {
	s := session(t)
	if err := s.CheckSource(key(t, "a")); err != nil {
		t.Error(err)
	}
	if err := s.CheckSource(between(t, "", ps, "a")); err != nil {
		t.Error(err)
	}
	mustBe(t, s.CheckSource(between(t, gpu, ps, "a")), status.InvalidArgument, "/device:GPU:0 unknown device. ")
	mustBe(t, s.CheckSource(between(t, gpu, ps, "a")), status.InvalidArgument, "has no device "+gpu)
	other := s.CheckSource(between(t, ps1, ps, "a"))
	mustBe(t, other, status.InvalidArgument, "has no device "+ps1)
	if strings.Contains(other.Error(), "unknown device") { // it exists here, but the key has another task
		t.Errorf("CPU:0 is unknown: %v", other)
	}
	old, err := rendezvous.ParseKey(rendezvous.CreateKey(ps, 1, ps, "a", rendezvous.FrameIter{}))
	if err != nil {
		t.Fatal(err)
	}
	refused := s.CheckSource(old)
	mustBe(t, refused, status.Aborted, "RecvTensor expects a different device incarnation: 1 vs. 7890. "+
		`Your worker job ("/job:ps/replica:0/task:0") was probably restarted. `+
		"Check your worker job for the reason why it was restarted.")
	if _, ok := status.From(refused).Payload(status.PayloadPossiblyRestarted); !ok {
		t.Error("no payload says that the process may have restarted")
	}
}

// TestCheckSourceDevice: TensorFlow's worker looks up the device without its task.
func TestCheckSourceDevice(t *testing.T) {
	s := session(t)
	for _, src := range []string{ps, ps1, ""} {
		if err := s.CheckSourceDevice(between(t, src, ps, "a")); err != nil {
			t.Errorf("source %q: %v", src, err)
		}
	}
	if err := s.CheckSourceDevice(between(t, gpu, ps, "a")); status.CodeOf(err) != status.InvalidArgument || status.From(err).Message() != "/device:GPU:0 unknown device." {
		t.Errorf("unknown device: %v", err)
	}
	old, err := rendezvous.ParseKey(rendezvous.CreateKey(ps1, 1, ps, "a", rendezvous.FrameIter{}))
	if err != nil {
		t.Fatal(err)
	}
	mustBe(t, s.CheckSourceDevice(old), status.Aborted, "RecvTensor expects a different device incarnation: 1 vs. 7890. ")
}

// A value under the name of a published tensor would be kept until the step ends, since its
// receivers are answered by the publications.
func TestSendUnderTheNameOfAPublication(t *testing.T) {
	c := counted(t)
	b := initialized(t, nil)
	defer b.Close()
	for _, name := range []string{"publication:m@1/x", "publication:", "publication:0", "publication:" + strings.Repeat("long", 1000)} {
		err := c.send(b, key(t, name), 1)
		if len(err.Error()) > 1000 {
			t.Errorf("an error of %d bytes", len(err.Error()))
		}
		mustBe(t, err, status.InvalidArgument, `Send of `+key(t, name).Describe()+`: names that begin with "publication:" are those of published tensors, so nobody would receive it; send it under another name`)
	}
	c.mustSend(t, b, key(t, "publication"), 2)
	mustRecv(t, b, key(t, "publication"), 2)
}
