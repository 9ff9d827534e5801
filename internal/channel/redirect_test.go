package channel

import (
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/status"
)

// TestRedirectEndsWhatHasNoResponse: when a better channel replaces one, requests that wait end
// with the error that has the peer send them there. A content goes on, and the channel is idle
// behind it.
func TestRedirectEndsWhatHasNoResponse(t *testing.T) {
	l := newLink(t)
	l.manual = true
	l.receive(1, "waits")
	l.receive(2, "flows")
	l.run()
	responder := l.ends[1].ch
	responder.Respond(l.now, 2, 1, Response{Value: valueOf(1 << 20), Source: Source{Handle: 1}})
	l.run()
	if responder.Idle() || l.ends[0].ch.Idle() {
		t.Error("a side is idle with a request under way")
	}
	responder.Redirect(l.now, status.New(status.Unavailable, "elsewhere"))
	l.run()
	if a := l.last(); a.ID != 1 || a.Outcome != OutcomeFallback || !a.ByPeer {
		t.Errorf("receive %d ended with %v", a.ID, a.Outcome)
	}
	detached := false
	for _, a := range l.ends[1].others {
		detached = detached || a.Kind == ActDetach && a.ID == 1
	}
	if !detached {
		t.Error("the response cache keeps the request")
	}
	place := l.ends[0].places[0]
	l.ends[0].ch.Place(l.now, place.ID, place.Attempt, l.ends[0].dest())
	l.run()
	if a := l.last(); a.ID != 2 || a.Outcome != OutcomeWritten {
		t.Errorf("receive %d ended with %v", a.ID, a.Outcome)
	}
	l.wait(time.Second)
	for i := range l.ends {
		if !l.ends[i].ch.Idle() {
			t.Errorf("side %d is not idle", i)
		}
	}
	l.ends[0].ch.Ack(l.now, []uint64{1})
	if l.ends[0].ch.Idle() {
		t.Error("a side is idle with an acknowledgement to send")
	}
	l.run()
	l.clean()
}
