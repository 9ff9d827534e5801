package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/tryst-rdma/tryst/status"
)

// Interruption reports to a caller of a pull that it was interrupted, or that it goes on.
type Interruption struct {
	// Err is what interrupted the pull; nil when it goes on. Its text has the address.
	Err error
	// Retry is for how long the pull now tries to go on; with Err.
	Retry time.Duration
	// Lasted is how long the interruption took; without Err.
	Lasted time.Duration
}

// outage is the time in which a pull makes no progress, from its first failure:
//
//	             failed                  failed for longer than retry
//	progress ─────────────► interrupted ──────────────────────────────► the last error
//	   ▲                         │
//	   └─ a part has come whole ─┘
//
// A session that only lasts is no progress. A part that cannot be divided, and may take longer than an
// outage, lengthens the outage by that time (allow).
//
// It decides whether the pull tries again, and when. It is a value without a clock: time is
// passed in.
type outage struct {
	retry time.Duration // the longest outage; 0 for none
	slow  time.Duration // what the largest part adds to it

	began   time.Time     // zero without an outage
	pause   time.Duration // before the next attempt
	err     error         // the last one of the outage
	resumed bool          // the caller knows that the pull goes on
}

// mayPass reports whether an error of a server or a connection may pass. Servers that stop, and
// connections that break, are Unavailable. Aborted means that the server restarted, or that the
// step of a session has ended. A server that has no room for a call marks its refusal, if the room
// comes back when others end; a refusal without the mark is for good. A wrong port or a wrong setting
// does not pass.
func mayPass(err error) bool {
	e := status.From(err)
	_, wrong := e.Payload(wrongSettingKey)
	_, again := e.Payload(status.TryAgain)
	return !wrong && (again || e.Code() == status.Unavailable || e.Code() == status.Aborted)
}

// failed takes note of a failure. It returns for how long to wait before the next attempt, or
// the error that ends the pull. first is set if the failure begins an outage.
func (o *outage) failed(now time.Time, err error) (pause time.Duration, first bool, final error) {
	if !mayPass(err) || o.retry == 0 {
		return 0, false, err
	}
	if o.began.IsZero() {
		*o = outage{retry: o.retry, slow: o.slow, began: now, pause: retryMin}
		first = true
	}
	o.err = err
	left := o.left(now)
	if left <= 0 {
		return 0, false, lastedTooLong(err, now.Sub(o.began))
	}
	pause = min(o.pause/2+rand.N(o.pause), left) //nolint:gosec // so that pullers do not return all at once
	o.pause = min(2*o.pause, retryMax)
	return pause, first, nil
}

// lastedTooLong returns the error of a pull whose outage has lasted too long. A refusal by the server keeps its mark that it may pass,
// so a watch goes on. A lack of memory in this process loses that mark, so a watch ends: its own caller may hold the memory.
func lastedTooLong(err error, lasted time.Duration) error {
	e, suffix := status.From(err), fmt.Sprintf("; it was tried again for %v", lasted.Round(time.Second/10))
	if _, said := errors.AsType[*status.Said](err); said || status.IsFromPeer(err) {
		return e.WithSuffix(suffix)
	}
	return status.New(e.Code(), e.Message()+suffix)
}

// left returns for how long the outage may still last.
func (o *outage) left(now time.Time) time.Duration { return o.retry + o.slow - now.Sub(o.began) }

// allow takes note of the largest part that is requested: beyond the usual length of a piece it is one
// that cannot be divided.
func (o *outage) allow(largest int64) { o.slow = slowest(max(largest-pieceBytes, 0)) }

// over ends the outage.
func (o *outage) over() { *o = outage{retry: o.retry, slow: o.slow} }

// interrupted handles a failure of the pull: it returns nil when the pull must try again, after
// a pause, or the error that ends it.
func (pl *pull) interrupted(caller context.Context, err error) error {
	if caller.Err() != nil {
		return pl.explain(caller, err)
	}
	pl.mu.Lock()
	pause, first, final := pl.outage.failed(time.Now(), err)
	retry := pl.outage.retry
	pl.mu.Unlock()
	if final != nil {
		return final
	}
	if first && pl.req.Interrupted != nil {
		pl.req.Interrupted(Interruption{Err: err, Retry: retry})
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-caller.Done():
		return pl.explain(caller, err)
	}
}

// goesOn reports, once in an outage, that the server answers again. The outage ends only with
// the next part: a session without one is the same outage.
func (pl *pull) goesOn() {
	pl.mu.Lock()
	o := &pl.outage
	tell := !o.began.IsZero() && !o.resumed
	o.resumed = true
	lasted := time.Since(o.began)
	pl.mu.Unlock()
	if tell && pl.req.Interrupted != nil {
		pl.req.Interrupted(Interruption{Lasted: lasted})
	}
}

// patience bounds a question to the server, the keys of a session and the wait for a part. Before an
// outage a server may take its time; slower is what the publication adds to that.
func (pl *pull) patience(slower time.Duration) time.Duration {
	pl.mu.Lock()
	defer pl.mu.Unlock()
	if pl.outage.began.IsZero() {
		return max(pl.req.Retry, firstPatience) + slower
	}
	return max(pl.outage.left(time.Now()), leastPatience)
}

// inOutage reports whether the pull has made no progress since a failure.
func (pl *pull) inOutage() bool {
	pl.mu.Lock()
	defer pl.mu.Unlock()
	return !pl.outage.began.IsZero()
}

// ask repeats a question until it is answered. Only the time without any answer counts as an
// outage.
func (pl *pull) ask(caller context.Context, question func(context.Context) error) error {
	for {
		d := pl.patience(0)
		ctx, cancel := context.WithCancelCause(caller) // without a deadline, as in open
		timer := time.AfterFunc(d, func() { cancel(pl.p.silent(d)) })
		err := question(ctx)
		if err != nil && ctx.Err() != nil && caller.Err() == nil {
			err = context.Cause(ctx)
		}
		timer.Stop()
		cancel(nil)
		if err == nil {
			pl.goesOn()
			return nil
		}
		if err = pl.interrupted(caller, err); err != nil {
			return err
		}
	}
}

// silent is the error of a question without an answer.
func (p *Puller) silent(d time.Duration) error {
	return status.Errorf(status.Unavailable, "%s did not answer within %v", p.server(), d.Round(time.Second/10))
}
