package channel

import (
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/status"
)

// TestRedirectEndsWhatHasNoResponse: when a better channel replaces one, requests that wait end
// with the error that makes the peer send them there. A content goes on, and the channel is idle
// behind it.
func TestRedirectEndsWhatHasNoResponse(t *testing.T) {
	p := newPair(t)
	p.manual = true
	p.receive(1, "waits")
	p.receive(2, "flows")
	p.run()
	responder := p.ends[1].ch
	responder.Respond(p.now, 2, 1, Response{Value: valueOf(1 << 20), Source: Source{Handle: 1}})
	p.run()
	if responder.Idle() || p.ends[0].ch.Idle() {
		t.Error("a side is idle with a request under way")
	}
	responder.Redirect(p.now, status.New(status.Unavailable, "elsewhere"))
	p.run()
	if a := p.last(); a.ID != 1 || a.Outcome != OutcomeFallback || !a.ByPeer {
		t.Errorf("receive %d ended with %v", a.ID, a.Outcome)
	}
	detached := false
	for _, a := range p.ends[1].others {
		detached = detached || a.Kind == ActDetach && a.ID == 1
	}
	if !detached {
		t.Error("the response cache keeps the request")
	}
	place := p.ends[0].places[0]
	p.ends[0].ch.Place(p.now, place.ID, place.Attempt, p.ends[0].dest())
	p.run()
	if a := p.last(); a.ID != 2 || a.Outcome != OutcomeWritten {
		t.Errorf("receive %d ended with %v", a.ID, a.Outcome)
	}
	p.wait(time.Second)
	for i := range p.ends {
		if !p.ends[i].ch.Idle() {
			t.Errorf("side %d is not idle", i)
		}
	}
	p.ends[0].ch.Ack(p.now, []uint64{1})
	if p.ends[0].ch.Idle() {
		t.Error("a side is idle with an acknowledgement to send")
	}
	p.run()
	p.clean()
}
