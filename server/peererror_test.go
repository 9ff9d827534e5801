package server

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
)

// TestContextErrorOfAPeerIsNotTheCallers: a peer aborts its step with the error of its context,
// while the receiver's own context lives.
func TestContextErrorOfAPeerIsNotTheCallers(t *testing.T) {
	bothTransports(t, func(t *testing.T, a, b *Server) {
		for step, reason := range []error{context.Canceled, context.DeadlineExceeded} {
			step := int64(step) + 1
			a.AbortStep(step, reason)
			_, err := b.Recv(context.Background(), step, a.Task().String(), "x")
			wantPeersContextError(t, err, reason)
			got := make(chan error, 1)
			b.RecvAsync(context.Background(), step, a.Task().String(), "x", func(_ rendezvous.Value, err error) { got <- err })
			wantPeersContextError(t, wait(t, got, "the receive"), reason)
		}
	})
}

func wantPeersContextError(t *testing.T, err, reason error) {
	t.Helper()
	if status.CodeOf(err) != status.CodeOf(reason) || errors.Is(err, reason) {
		t.Errorf("%v: has the code of %v, and matches it: %v; want the code, and no match", err, reason, errors.Is(err, reason))
	}
}

// bothTransports runs a test with two servers whose values go over gRPC, and over verbs.
func bothTransports(t *testing.T, test func(t *testing.T, a, b *Server)) {
	t.Run("grpc", func(t *testing.T) {
		a, b := twoTasks(t)
		test(t, a, b)
	})
	t.Run("verbs", func(t *testing.T) {
		w := newVerbsTown(t, 2)
		a, b := w.start(0), w.start(1)
		w.up(a, b.Task())
		w.up(b, a.Task())
		test(t, a.Server, b.Server)
	})
}

// TestErrorsOfAPeerNameTheReceive: the edge, the step, the peer and what has happened.
func TestErrorsOfAPeerNameTheReceive(t *testing.T) {
	bothTransports(t, func(t *testing.T, a, b *Server) {
		recv := func(step int64) error {
			t.Helper()
			_, err := b.Recv(context.Background(), step, a.Task().String(), "x")
			got := make(chan error, 1)
			b.RecvAsync(context.Background(), step, a.Task().String(), "x", func(_ rendezvous.Value, err error) { got <- err })
			if async := wait(t, got, "the receive"); async == nil || async.Error() != err.Error() {
				t.Errorf("RecvAsync: %v, want the error of Recv, %v", async, err)
			}
			return err
		}
		from := a.Task().String()
		a.EndStep(1)
		wantError(t, recv(1), status.Aborted, `Aborted: receive of edge "x" from `+from, " in step 1: "+from+" has ended the step: Cleanup 1")
		a.AbortStep(2, errors.New("disk is full"))
		wantError(t, recv(2), status.Unknown, `Unknown: receive of edge "x" from `+from, " in step 2: "+from+" says: disk is full")
		ended := b.recv(3, from, "x")
		for a.cache.Stats().Waiting == 0 && t.Context().Err() == nil {
			runtime.Gosched()
		}
		if err := a.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Errorf("Close: %v", err)
		}
		err := wait(t, ended, "the receive").err
		wantError(t, err, status.Aborted, `Aborted: receive of edge "x" from `+from, " in step 3: "+from+" is shutting down: ")
		if text := err.Error(); !strings.HasSuffix(text, ": Shutdown") && !strings.HasSuffix(text, ": Call was aborted") { // of the step, or of the response cache
			t.Errorf("%q ends with neither reason of a stop", text)
		}
	})
}

// TestKindsOfAborted: the receiver of a value learns of which kind the end is, in the process of the sender, over gRPC
// and over verbs.
func TestKindsOfAborted(t *testing.T) {
	bothTransports(t, func(t *testing.T, a, b *Server) {
		from := a.Task().String()
		b.EndStep(1)
		wantKind(t, wait(t, b.recv(1, from, "x"), "a receive in a step that has ended here").err, status.ErrStepEnded)
		a.EndStep(2)
		wantKind(t, wait(t, b.recv(2, from, "x"), "a receive in a step that its peer has ended").err, status.ErrStepEnded)
		wantKind(t, wait(t, a.recv(2, from, "x"), "a receive of one's own").err, status.ErrStepEnded)
		a.AbortStep(3, status.New(status.Aborted, "no more"))
		wantKind(t, wait(t, b.recv(3, from, "x"), "a receive in a step that its peer has aborted").err, status.ErrStepEnded)
		waits := b.recv(4, from, "x")
		for a.cache.Stats().Waiting == 0 && t.Context().Err() == nil {
			runtime.Gosched()
		}
		if err := a.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Errorf("Close: %v", err)
		}
		wantKind(t, wait(t, waits, "the receive that waits").err, status.ErrShutdown)
		wantKind(t, wait(t, a.recv(4, from, "x"), "a receive of a closed server").err, status.ErrShutdown)
	})
}

// wantKind checks that err is Aborted of a kind and of no other.
func wantKind(t *testing.T, err, want error) {
	t.Helper()
	if status.CodeOf(err) != status.Aborted {
		t.Errorf("%v, want Aborted", err)
	}
	for _, kind := range []error{status.ErrPeerRestarted, status.ErrStepEnded, status.ErrShutdown} {
		if is := errors.Is(err, kind); is != errors.Is(kind, want) {
			t.Errorf("errors.Is(%v, %v) is %v", err, kind, is)
		}
	}
}
