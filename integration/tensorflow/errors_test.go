//go:build interop

package tensorflow_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/internal/config"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/transport"
)

// wantError checks an error's code and that its text begins with message: the
// peer may add where it came from.
func wantError(t testing.TB, err error, code status.Code, message string) {
	t.Helper()
	if e := status.From(err); status.CodeOf(err) != code || !strings.HasPrefix(e.Message(), message) {
		t.Errorf("got %v, want %v: %s", err, code, message)
	}
}

func wantPayload(t testing.TB, err error, key, value string) {
	t.Helper()
	if got, ok := status.From(err).Payload(key); !ok || string(got) != value {
		t.Errorf("payload %s is %q (%v), want %q, in %v", key, got, ok, value, err)
	}
}

// TestAbortReachesTensorFlow: TensorFlow's graph waits for our value, and our
// step ends with an error. RunGraph reports it with code, text and payloads.
func TestAbortReachesTensorFlow(t *testing.T) {
	w := start(t, options{})
	for _, c := range []struct {
		name    string
		err     *status.Error
		derived bool
	}{
		{"root", status.New(status.FailedPrecondition, "the loader has no more rows").WithPayload("tryst.test/why", []byte("end\x00of file")), false},
		{"aborted is derived", status.New(status.Aborted, "something else failed"), true},
		{"unavailable is an answer", status.New(status.Unavailable, "the disk is away"), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := w.in(t)
			s := w.runUntilAsked(w.soon(), w.echo(tensor.Float32))
			s.Abort(c.err)
			err := s.wait()
			wantError(t, err, c.err.Code(), c.err.Message())
			for key, value := range c.err.Payloads() {
				wantPayload(t, err, key, string(value))
			}
			if status.IsDerived(err) != c.derived {
				t.Errorf("derived: %v, in %v", !c.derived, err)
			}
			s.cleanUp()
		})
	}
}

// TestLongErrorIsCut: an error of 1 MiB reaches TensorFlow, and comes back from
// it, as an error and not as a broken call.
func TestLongErrorIsCut(t *testing.T) {
	w := start(t, options{})
	s := w.run(w.echo(tensor.Float32))
	back := w.receive(s, "back")
	s.Abort(status.New(status.FailedPrecondition, strings.Repeat("long", 1<<18)))
	wantError(t, s.wait(), status.FailedPrecondition, strings.Repeat("long", 700))
	wantError(t, (await(t, back, "back")).err, status.FailedPrecondition, strings.Repeat("long", 700))
	s.cleanUp()
}

// TestOtherIncarnation: a key with an incarnation of an earlier process is
// refused on both sides with the same words, but for the names in them.
func TestOtherIncarnation(t *testing.T) {
	w := start(t, options{})
	const text = "RecvTensor expects a different device incarnation: 1234 vs. "
	const rest = "was probably restarted. Check your worker job for the reason why it was restarted."

	g := w.graph()
	g.send("back", g.recvFrom("there", 1234, tensor.Float32), tensor.Float32)
	s := w.run(g)
	ours := s.wait()
	s.cleanUp()
	_, theirs := w.newStep().Recv(w.soon(), w.key(tfDevice, 1234, trystDevice, "x"), rendezvous.Args{})
	for _, err := range []error{ours, theirs} {
		wantError(t, err, status.Aborted, text)
		if !strings.Contains(err.Error(), rest) {
			t.Error(err)
		}
		wantPayload(t, err, status.PayloadPossiblyRestarted, "")
	}
}

// TestKernelErrorReachesTryst: a kernel of TensorFlow fails while we wait for
// what its graph would send. We get the kernel's error, with its code, and the
// others of the step one that is marked as derived, if any.
func TestKernelErrorReachesTryst(t *testing.T) {
	w := start(t, options{})
	g := w.graph()
	three := g.constant("three", slice[float32](t, 1, 2, 3))
	sum := g.add("sum", "AddV2", attrs{"T": typeAttr(tensor.Float32)}, g.recv("there", tensor.Float32), three)
	g.send("back", sum, tensor.Float32)
	s := w.run(g)
	back := w.receive(s, "back")
	w.send(s, "there", slice[float32](t, 1, 2))
	o := await(t, back, "back")
	wantError(t, o.err, status.InvalidArgument, "Incompatible shapes: [2] vs. [3]")
	wantError(t, s.wait(), status.InvalidArgument, "Incompatible shapes: [2] vs. [3]")
	s.cleanUp()
}

// TestCleanupReachesTryst: the step ends at TensorFlow while we wait for a value
// that nobody sends.
func TestCleanupReachesTryst(t *testing.T) {
	w := start(t, options{})
	s := w.run(w.echo(tensor.Float32))
	never := w.receive(s, "never")
	w.send(s, "there", slice[float32](t, 1))
	w.wantValue(s, "back", slice[float32](t, 1))
	s.end()
	o := await(t, never, "the value that is never sent")
	wantError(t, o.err, status.Aborted, "Cleanup ")
	if !status.IsDerived(o.err) {
		t.Errorf("not derived: %v", o.err)
	}
}

// TestDuplicateRequest: a request id that comes twice is refused on both sides
// with the same words.
func TestDuplicateRequest(t *testing.T) {
	w := start(t, options{})
	us, err := w.conns.Worker(w.server.Task())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		worker transport.Worker
		key    rendezvous.Key
	}{
		{"TensorFlow", w.tf, w.toTryst("x")},
		{"Tryst", us, w.toTF("x")},
	} {
		t.Run(c.name, func(t *testing.T) {
			req := &tfpb.RecvTensorRequest{StepId: stepID(), RendezvousKey: c.key.String(), RequestId: 4711}
			ctx, cancel := context.WithCancel(w.soon())
			first := make(chan error, 1)
			go func() {
				_, err := c.worker.RecvTensor(ctx, req)
				first <- err
			}()
			// Whichever comes second is refused; the other one waits.
			second := make(chan error, 1)
			go func() {
				_, err := c.worker.RecvTensor(ctx, req)
				second <- err
			}()
			var refused, waited error
			select {
			case refused = <-first:
				cancel()
				waited = await(t, second, "the other call")
			case refused = <-second:
				cancel()
				waited = await(t, first, "the other call")
			case <-time.After(soon):
				t.Fatal("both wait")
			}
			wantError(t, refused, status.Aborted, "The same RecvTensor (GrpcWorker) request was received twice. ")
			wantError(t, waited, status.Cancelled, "")
		})
	}
}

// TestTensorFlowDies: receives from a TensorFlow that is killed end with
// Unavailable, at once when a connection breaks and after the peer timeout when
// it is asked later.
func TestTensorFlowDies(t *testing.T) {
	const timeout = 2 * time.Second
	w := start(t, options{config: func(c *config.Config) { c.PeerTimeout = timeout }})
	s := w.run(w.echo(tensor.Float32))
	w.send(s, "there", slice[float32](t, 1))
	w.wantValue(s, "back", slice[float32](t, 1)) // the connection is there
	s.end()

	s = w.runUntilAsked(w.soon(), w.echo(tensor.Float32))
	back := w.receive(s, "back")
	w.process.kill()
	wantError(t, await(t, back, "back").err, status.Unavailable, tfTask.String()+": "+w.theirs+": ")
	wantError(t, s.wait(), status.Unavailable, "")
	o := await(t, w.receive(w.newStep(), "later"), "a receive of the dead")
	wantError(t, o.err, status.Unavailable, tfTask.String()+" was not reached for 2s: ")
}

// TestTrystStops: a server that closes tells the TensorFlow that waits for its
// values.
func TestTrystStops(t *testing.T) {
	w := start(t, options{})
	s := w.runUntilAsked(w.soon(), w.echo(tensor.Float32))
	w.stopServer()
	err := s.wait()
	wantError(t, err, status.Aborted, "Shutdown")
	if !status.IsDerived(err) {
		t.Errorf("not derived: %v", err)
	}
}
