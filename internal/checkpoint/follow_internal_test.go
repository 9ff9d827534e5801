package checkpoint

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/status"
)

// A watch whose context ends while a pull fails ends with the error of the context, if it would have gone on otherwise. An error
// that would have ended it stays.
func TestWatchEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	f := &follower{req: PullRequest{Publication: "w"}, wake: make(chan struct{}, 1)}
	replaced := changed(status.New(status.FailedPrecondition, "replaced"))
	if err := f.failed(ctx, replaced); err != nil {
		t.Fatalf("a version that was replaced ended the watch: %v", err)
	}
	cancel()
	for _, err := range []error{replaced, status.New(status.NotFound, "withdrawn"), status.New(status.Unavailable, "lost")} {
		if got := f.failed(ctx, err); !errors.Is(got, context.Canceled) {
			t.Errorf("after the end of its context, and %v, the watch ended with %v", err, got)
		}
	}
	full := status.New(status.ResourceExhausted, "the disk is full")
	if got := f.failed(ctx, full); !errors.Is(got, full) {
		t.Errorf("the watch ended with %v, want %v", got, full)
	}
}

// A server may have no room for longer than a pull tries it again, and the watch goes on. If this process has no memory, the watch ends:
// its caller may hold all of it.
func TestWatchOutlivesAServerWithoutRoom(t *testing.T) {
	const text = "no room for one more"
	for name, c := range map[string]struct {
		full *status.Error
		ends bool
	}{
		"the server says so":    {full: status.Errorf(status.ResourceExhausted, "%w", &status.Said{Peer: "h:1", Text: text}).WithPayload(status.TryAgain, nil)},
		"an answer of the peer": {full: status.Passing(text).FromPeer()},
		"this process":          {full: status.Passing(text), ends: true},
	} {
		now := time.Now()
		o := outage{retry: time.Second}
		if _, _, final := o.failed(now, c.full); final != nil {
			t.Fatalf("%s: the first attempt ended the pull: %v", name, final)
		}
		_, _, final := o.failed(now.Add(2*time.Second), c.full)
		if final == nil {
			t.Fatalf("%s: the pull goes on after the time for which it may try again", name)
		}
		f := &follower{wake: make(chan struct{}, 1)}
		if err := f.failed(t.Context(), final); (err != nil) != c.ends {
			t.Errorf("%s: the watch ended: %v", name, err)
		}
	}
}
