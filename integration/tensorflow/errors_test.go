//go:build interop

package tensorflow_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/internal/tensorflow/master"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/server"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/transport"
)

// wantError checks the code of an error, and that its text begins with message. The peer may append
// the origin of the error.
func wantError(t testing.TB, err error, code status.Code, message string) {
	t.Helper()
	if e := status.From(err); status.CodeOf(err) != code || !strings.HasPrefix(e.Message(), message) {
		t.Errorf("got %v, want %v: %s", err, code, message)
	}
}

func wantPayload(t testing.TB, err error, key, value string) {
	t.Helper()
	if got, ok := status.From(err).Payload(key); !ok || string(got) != value {
		t.Errorf("payload %s of %v is %q (%v), want %q", key, err, got, ok, value)
	}
}

// TestAbortReachesTensorFlow: our step ends with an error while TensorFlow's graph waits for our
// value. RunGraph returns the error with code, text and payloads.
func TestAbortReachesTensorFlow(t *testing.T) {
	bed := start(t, options{})
	for _, c := range []struct {
		name    string
		err     *status.Error
		derived bool
	}{
		{"root", status.New(status.FailedPrecondition, "the loader has no more rows").WithPayload("tryst.test/why", []byte("end\x00of file")), false},
		{"aborted is derived", status.New(status.Aborted, "something else failed"), true},
		{"unavailable", status.New(status.Unavailable, "the disk is away"), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			bed := bed.in(t)
			s := bed.runUntilRequest(bed.soon(), bed.echo(tensor.Float32))
			s.Abort(c.err)
			err := s.wait()
			wantError(t, err, c.err.Code(), c.err.Message())
			for key, value := range c.err.Payloads() {
				wantPayload(t, err, key, string(value))
			}
			if status.IsDerived(err) != c.derived {
				t.Errorf("%v: derived is %v, want %v", err, !c.derived, c.derived)
			}
			s.cleanUp()
		})
	}
}

// TestLongErrorIsCut: an error of 1 MiB is shortened, and reaches TensorFlow, and us again, with
// its code. The call does not fail in gRPC.
func TestLongErrorIsCut(t *testing.T) {
	bed := start(t, options{})
	s := bed.run(bed.echo(tensor.Float32))
	back := bed.receive(s, "back")
	s.Abort(status.New(status.FailedPrecondition, strings.Repeat("long", 1<<18)))
	wantError(t, s.wait(), status.FailedPrecondition, strings.Repeat("long", 700))
	wantError(t, (await(t, back, "back")).err, status.FailedPrecondition, strings.Repeat("long", 700))
	s.cleanUp()
}

// TestOtherIncarnation: both sides refuse a key with the incarnation of an earlier process, with
// the same text except for the names in it.
func TestOtherIncarnation(t *testing.T) {
	bed := start(t, options{})
	const text = "RecvTensor expects a different device incarnation: 1234 vs. "
	const rest = "was probably restarted. Check your worker job for the reason why it was restarted."

	g := bed.graph()
	g.send("back", g.recvFrom("there", 1234, tensor.Float32), tensor.Float32)
	s := bed.run(g)
	ours := s.wait()
	s.cleanUp()
	_, theirs := bed.newStep().Recv(bed.soon(), bed.key(tfDevice, 1234, trystDevice, "x"), rendezvous.Args{})
	for _, err := range []error{ours, theirs} {
		wantError(t, err, status.Aborted, text)
		if !strings.Contains(err.Error(), rest) {
			t.Errorf("error %v lacks %q", err, rest)
		}
		wantPayload(t, err, status.PayloadPossiblyRestarted, "")
	}
}

// TestKernelErrorReachesTryst: a kernel of TensorFlow fails while we wait for
// what its graph would send. We get the kernel's error, with its code, and the
// others of the step one that is marked as derived, if any.
func TestKernelErrorReachesTryst(t *testing.T) {
	bed := start(t, options{})
	g := bed.graph()
	three := g.Const("three", slice[float32](t, 1, 2, 3))
	sum := g.Add("sum", "AddV2", master.Attrs{"T": master.Type(tensor.Float32)}, g.recv("there", tensor.Float32), three)
	g.send("back", sum, tensor.Float32)
	s := bed.run(g)
	back := bed.receive(s, "back")
	bed.send(s, "there", slice[float32](t, 1, 2))
	o := await(t, back, "back")
	wantError(t, o.err, status.InvalidArgument, "Incompatible shapes: [2] vs. [3]")
	wantError(t, s.wait(), status.InvalidArgument, "Incompatible shapes: [2] vs. [3]")
	s.cleanUp()
}

// TestCleanupReachesTryst: the step ends at TensorFlow while our receive waits for a value that is
// never sent.
func TestCleanupReachesTryst(t *testing.T) {
	bed := start(t, options{})
	s := bed.run(bed.echo(tensor.Float32))
	never := bed.receive(s, "never")
	bed.send(s, "there", slice[float32](t, 1))
	bed.wantValue(s, "back", slice[float32](t, 1))
	s.end()
	o := await(t, never, "the value that is never sent")
	wantError(t, o.err, status.Aborted, "Cleanup ")
	if !status.IsDerived(o.err) {
		t.Errorf("got %v, want a derived error", o.err)
	}
}

// TestDuplicateRequest: both sides refuse a repeated request id, with the same text.
func TestDuplicateRequest(t *testing.T) {
	bed := start(t, options{})
	us, err := bed.conns.Worker(bed.server.Task())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		worker transport.Worker
		key    rendezvous.Key
	}{
		{"TensorFlow", bed.tf, bed.toTryst("x")},
		{"Tryst", us, bed.toTF("x")},
	} {
		t.Run(c.name, func(t *testing.T) {
			req := &tfpb.RecvTensorRequest{StepId: master.NewStep(), RendezvousKey: c.key.String(), RequestId: 4711}
			ctx, cancel := context.WithCancel(bed.soon())
			first := make(chan error, 1)
			go func() {
				_, err := c.worker.RecvTensor(ctx, req)
				first <- err
			}()
			// The call that arrives later is refused. The other one waits.
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
				t.Fatal("both calls wait, want that one is refused")
			}
			wantError(t, refused, status.Aborted, "The same RecvTensor (GrpcWorker) request was received twice. ")
			wantError(t, waited, status.Cancelled, "")
		})
	}
}

// TestTensorFlowDies: receives from a killed TensorFlow end with Unavailable: those under way when
// the connection breaks, at once; later ones after the peer timeout.
func TestTensorFlowDies(t *testing.T) {
	const timeout = 6 * time.Second // in which a busy machine connects
	bed := start(t, options{config: func(c *server.Config) { c.PeerTimeout = timeout }})
	s := bed.run(bed.echo(tensor.Float32))
	bed.send(s, "there", slice[float32](t, 1))
	bed.wantValue(s, "back", slice[float32](t, 1)) // the connection is up
	s.end()

	s = bed.runUntilRequest(bed.soon(), bed.echo(tensor.Float32))
	back := bed.receive(s, "back")
	bed.process.kill()
	wantError(t, await(t, back, "back").err, status.Unavailable, tfTask.String()+": "+bed.tfAddress+": ")
	wantError(t, s.wait(), status.Unavailable, "")
	o := await(t, bed.receive(bed.newStep(), "later"), "a receive from the killed process")
	wantError(t, o.err, status.Unavailable, tfTask.String()+" was not reached for 6s: ")
}

// TestTrystStops: when our server closes, TensorFlow's requests that wait for its values end with
// an error.
func TestTrystStops(t *testing.T) {
	bed := start(t, options{})
	s := bed.runUntilRequest(bed.soon(), bed.echo(tensor.Float32))
	bed.stopServer()
	err := s.wait()
	wantError(t, err, status.Aborted, "Shutdown")
	if !status.IsDerived(err) {
		t.Errorf("got %v, want a derived error", err)
	}
}
