package delivery

import (
	"cmp"
	"time"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/transport"
)

// What the sender of a value learns when the value does not go back to its key.

// Fail implements transport.ResponseCache.
func (c *ResponseCache) Fail(p transport.Process, id uint64, attempt uint32, err error) {
	c.mu.Lock()
	c.do(c.table.failed(time.Now(), p, id, attempt, err))
}

// failed is the event that a transport cannot send the value of an attempt, and answers with
// err instead. The error takes the place of the value: the requester acknowledges it as any
// other, and that must not count for the value. Later attempts get the same error. Nothing
// happens when the value is not kept any more, or a newer attempt has come.
func (t *responses) failed(now time.Time, p transport.Process, id uint64, attempt uint32, err error) []responseAction {
	e := t.entry(p, id)
	if e == nil || e.state != entryKept || e.response.Err != nil || attempt < e.request.Attempt {
		return nil
	}
	lost := transport.Response{Value: e.response.Value, Err: notSent(e.request, err)}
	e.response = transport.Response{Err: err}
	t.charge(e, chargeFor(e.request, e.response))
	return append([]responseAction{{kind: doRelease, response: lost}}, t.admit(now)...)
}

// notReceived is what the sender of a value learns whose receive was cancelled, when it
// cannot go back.
func notReceived(r transport.Request) *status.Error {
	return status.Errorf(status.Aborted, "%s was not received: its receive was cancelled, and step %d has ended", r.Key.Describe(), r.Step).
		WithKind(status.ErrStepEnded)
}

// notAcknowledged is what the sender of a value learns when the requester, or this process,
// has ended before the acknowledgement. A requester that another process has displaced has restarted.
func notAcknowledged(r transport.Request, why *status.Error) *status.Error {
	kind := cmp.Or(status.KindOf(why), status.ErrPeerRestarted)
	return status.Errorf(why.Code(), "%s was not acknowledged by %s: %s", r.Key.Describe(), cmp.Or(r.Requester.Name, "its receiver"), why.Message()).
		WithKind(kind)
}

// notSent is what the sender of a value learns that a transport cannot send.
func notSent(r transport.Request, err error) *status.Error {
	return status.Errorf(status.CodeOf(err), "%s was not sent to %s, whose receive has ended with: %s",
		r.Key.Describe(), cmp.Or(r.Requester.Name, "its receiver"), status.From(err).Message())
}

// release gives up the cache's reference to a value, and then tells its sender the outcome,
// nil when the requester has the value. Polling goroutines call the cache,
// too, and the owner of memory may take its time, so the owner is called on a goroutine of
// its own. Called while work is counted.
func (c *ResponseCache) release(r *transport.Response, outcome error) {
	r.Value.Deliver(outcome, c.work.Go)
}
