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

// TestCancelOfOurReceive: a cancelled receive ends here at once. TensorFlow has no message for a
// cancellation: it sees the end of the call, and aborts the step a second later.
func TestCancelOfOurReceive(t *testing.T) {
	bed := start(t, options{})
	s := bed.runUntilRequest(bed.soon(), bed.echo(tensor.Float32))
	// The test cannot see whether a request has reached TensorFlow. So it cancels later and later,
	// until a cancellation ends the step.
	for delay := 10 * time.Millisecond; len(s.done) == 0; delay *= 2 {
		if delay > soon {
			t.Fatal("no cancellation has ended the step at TensorFlow")
		}
		ctx, cancel := context.WithCancel(bed.soon())
		time.AfterFunc(delay, cancel)
		o := await(t, bed.receiveWith(ctx, s, "back"), "back")
		if status.CodeOf(o.err) == status.Aborted {
			break // TensorFlow has ended the step in the meantime
		}
		wantError(t, o.err, status.Cancelled, "RecvAsync of edge ")
	}
	err := s.wait()
	wantError(t, err, status.Aborted, fmt.Sprintf("Step %d cancelled.  Cancelling rendezvous.", s.id))
	if !status.IsDerived(err) {
		t.Errorf("got %v, want a derived error", err)
	}
	s.cleanUp()
}

// TestCancelOfRun: the master cancels RunGraph. TensorFlow cancels its request here, and our
// request ends with TensorFlow's error. Our step ends a second later.
func TestCancelOfRun(t *testing.T) {
	bed := start(t, options{})
	ctx, cancel := context.WithCancel(bed.soon())
	s := bed.runUntilRequest(ctx, bed.echo(tensor.Float32))
	back := bed.receive(s, "back")
	cancel()
	wantError(t, s.wait(), status.Cancelled, "")
	o := await(t, back, "back")
	wantError(t, o.err, status.Cancelled, "RecvFromRemoteAsync is cancelled.\n\t [[{{node recv_there_") // TensorFlow's text
	if !status.IsDerived(o.err) {
		t.Errorf("got %v, want a derived error", o.err)
	}
	var err error
	bed.until("the end of our step", func() bool {
		err = s.Send(bed.toTF("other"), rendezvous.Args{}, slice[float32](t, 1), false)
		return err != nil
	})
	wantError(t, err, status.Aborted, fmt.Sprintf("Step %d cancelled.  Cancelling rendezvous.", s.id))
	s.cleanUp()
}
