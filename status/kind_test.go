package status_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/tryst-rdma/tryst/status"
)

var kinds = []error{status.ErrPeerRestarted, status.ErrStepEnded, status.ErrShutdown, status.ErrTaskLeft}

// TestKindsOfAbortedAreToldApart: an error is of the one kind that it was given last. Copies, wrapping and
// the mark of a peer keep it.
func TestKindsOfAbortedAreToldApart(t *testing.T) {
	for _, first := range kinds {
		for _, kind := range kinds {
			e := status.New(status.Aborted, "the end").WithKind(first).WithKind(kind)
			for _, err := range []error{e, e.FromPeer(), e.Derived().WithPrefix("receive"), fmt.Errorf("outer: %w", e), status.From(fmt.Errorf("outer: %w", e))} {
				for _, other := range kinds {
					if is := errors.Is(err, other); is != errors.Is(other, kind) {
						t.Errorf("errors.Is(%v, %v) is %v, of kind %v", err, other, is, kind)
					}
				}
				if !errors.Is(status.KindOf(err), kind) {
					t.Errorf("KindOf(%v) is %v, want %v", err, status.KindOf(err), kind)
				}
			}
		}
	}
}

// TestOnlyAbortedHasAKind: the summary of a Group has the payloads of all its errors. Members of a group learn
// of a restart by FailedPrecondition, and calls for a task that has left are NotFound.
func TestOnlyAbortedHasAKind(t *testing.T) {
	for code := status.Cancelled; code <= status.Unauthenticated; code++ {
		for _, kind := range kinds {
			err := status.New(code, "x").WithKind(kind)
			want := code == status.Aborted || code == status.FailedPrecondition && errors.Is(kind, status.ErrPeerRestarted) || code == status.NotFound && errors.Is(kind, status.ErrTaskLeft)
			if errors.Is(err, kind) != want || (status.KindOf(err) != nil) != want {
				t.Errorf("%v: is %v: %v, want %v", err, kind, !want, want)
			}
		}
	}
	for _, err := range []error{nil, errors.New("x"), status.New(status.Aborted, "x"), status.New(status.Aborted, "x").WithKind(status.ErrShutdown).WithKind(nil)} {
		if kind := status.KindOf(err); kind != nil {
			t.Errorf("KindOf(%v) is %v", err, kind)
		}
	}
}
