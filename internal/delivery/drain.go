package delivery

import (
	"context"
	"sync"
	"time"

	"github.com/tryst-rdma/tryst/status"
)

// Drain waits until every kept value has been acknowledged, and every value that was sent before
// its step ended, if its requester has a connection: such a requester learns from its next
// request that the step has ended, and otherwise would wait for another process to take this
// one's place. What it has requested by an earlier connection counts for drainGrace after the
// present one came. It does not wait for errors: a peer that has not got one finds that this process
// is gone. It gives up a requester that has gone (responses.drain); its values end with Close. When
// ctx ends first it returns how much is left. It polls: closing is rare, and so nothing else has to
// carry a condition for it.
func (c *ResponseCache) Drain(ctx context.Context) error {
	calls, stop := context.WithCancel(ctx)
	var work sync.WaitGroup
	defer work.Wait()
	defer stop()
	for {
		c.mu.Lock()
		left, call := c.table.drain(time.Now())
		c.mu.Unlock()
		if left == (undrained{}) {
			return nil
		}
		for _, k := range call {
			work.Go(func() { c.drainCall(calls, k) })
		}
		if err := sleep(ctx, quietPoll); err != nil {
			return status.Errorf(status.CodeOf(err),
				"waiting for peers to acknowledge their responses: %d values of %d bytes are left, and %d of steps that have ended", left.values, left.bytes, left.unread)
		}
	}
}

// drainCall calls the address of a requester that Drain waits for.
func (c *ResponseCache) drainCall(ctx context.Context, k *requester) {
	ctx, cancel := context.WithTimeout(ctx, verifyWait)
	is, err := c.verify(ctx, k.name)
	cancel()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.table.drainCalled(time.Now(), k, is, err)
}

// undrained is what Drain waits for.
type undrained struct {
	values int   // that are kept
	bytes  int64 // their memory
	unread int   // values of steps that have ended, which connected requesters have not acknowledged
}

// drainState is what Drain knows of a requester without a connection.
type drainState struct {
	calling bool      // its address is being called
	callAt  time.Time // when it is called again
	gone    bool      // nobody waits for it
}

// drain returns what there is to wait for, and the requesters whose address is to be called; report by
// drainCalled. A requester without a connection has gone when
//
//	another process is at its address                        at once
//	its address is not reached, or it has none               drainGrace after its connection was lost
//
// One that is reached under its address will acknowledge, and is waited for.
func (t *responses) drain(now time.Time) (left undrained, call []*requester) {
	for _, k := range t.requesters {
		connected := k.connected()
		if connected {
			k.drain = drainState{}
			left.unread += k.unread(now)
		}
		values, bytes := k.values()
		if values == 0 || k.drain.gone {
			continue
		}
		switch {
		case connected, k.incarnation == 0:
		case !k.addressed:
			if now.Sub(k.since) >= drainGrace {
				continue
			}
		case !k.drain.calling && !now.Before(k.drain.callAt):
			k.drain.calling = true
			call = append(call, k)
		}
		left.values += values
		left.bytes += bytes
	}
	return left, call
}

// drainCalled is the event that the call of a requester's address has ended: with the incarnation of
// the process there, or with an error.
func (t *responses) drainCalled(now time.Time, k *requester, is uint64, err error) {
	k.drain.calling, k.drain.callAt = false, now.Add(drainPause)
	k.drain.gone = !k.connected() && (err == nil && is != k.incarnation || err != nil && now.Sub(k.since) >= drainGrace)
}

// unread counts the values of steps that have ended which k may still ask for. A requester asks again over its present
// connection for what it still waits for. It no longer waits if this task was out of its cluster meanwhile.
func (k *requester) unread(now time.Time) (n int) {
	fresh := now.Sub(k.up) < drainGrace
	for _, asked := range k.past.unread {
		if fresh || !asked.Before(k.up) {
			n++
		}
	}
	return n
}

// values counts the values that are kept for k, and their memory in bytes.
func (k *requester) values() (n int, bytes int64) {
	for _, e := range k.entries {
		if e.state == entryKept && e.response.Err == nil {
			n++
			bytes += e.response.Value.Tensor.MemorySize()
		}
	}
	return n, bytes
}

// sent notes that e, whose step has ended, had a value. A peer that is not Tryst need not
// acknowledge values, so nothing waits for it.
func (p *past) sent(e *entry) {
	if e.response.Err != nil || e.requester.incarnation == 0 || len(p.unread) >= maxUnread {
		return
	}
	if p.unread == nil {
		p.unread = make(map[uint64]time.Time)
	}
	p.unread[e.request.ID] = e.asked
}
