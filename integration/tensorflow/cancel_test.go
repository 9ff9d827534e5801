//go:build interop

package tensorflow_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// TestCancelOfOurReceive: it ends here at once. TensorFlow has no word for it but
// the end of the call, and ends its whole step for it, after a second.
func TestCancelOfOurReceive(t *testing.T) {
	w := start(t, options{})
	s := w.runUntilAsked(w.soon(), w.echo(tensor.Float32))
	// Nobody can see from here that a request has come to TensorFlow, so more and
	// more time is given until one has.
	for given := 10 * time.Millisecond; len(s.done) == 0; given *= 2 {
		if given > soon {
			t.Fatal("no cancel has ended the step at TensorFlow")
		}
		ctx, cancel := context.WithCancel(w.soon())
		time.AfterFunc(given, cancel)
		o := await(t, w.receiveWith(ctx, s, "back"), "back")
		if status.CodeOf(o.err) == status.Aborted {
			break // TensorFlow's step has ended meanwhile
		}
		wantError(t, o.err, status.Cancelled, "RecvFromRemoteAsync is cancelled.")
	}
	err := s.wait()
	wantError(t, err, status.Aborted, fmt.Sprintf("Step %d cancelled.  Cancelling rendezvous.", s.id))
	if !status.IsDerived(err) {
		t.Errorf("not derived: %v", err)
	}
	s.cleanUp()
}

// TestCancelOfRun: the master gives up. TensorFlow cancels its request here,
// and answers ours with its own word; our step ends after a second.
func TestCancelOfRun(t *testing.T) {
	w := start(t, options{})
	ctx, cancel := context.WithCancel(w.soon())
	s := w.runUntilAsked(ctx, w.echo(tensor.Float32))
	back := w.receive(s, "back")
	cancel()
	wantError(t, s.wait(), status.Cancelled, "")
	o := await(t, back, "back")
	wantError(t, o.err, status.Cancelled, "RecvFromRemoteAsync is cancelled.\n\t [[{{node recv_there_") // TensorFlow's own
	if !status.IsDerived(o.err) {
		t.Errorf("not derived: %v", o.err)
	}
	var err error
	w.until("the end of our step", func() bool {
		err = s.Send(w.toTF("other"), rendezvous.Args{}, slice[float32](t, 1), false)
		return err != nil
	})
	wantError(t, err, status.Aborted, fmt.Sprintf("Step %d cancelled.  Cancelling rendezvous.", s.id))
	s.cleanUp()
}
