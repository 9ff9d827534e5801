package grpctransport

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// gRPC tries to connect again for ever once an attempt has failed, after reconnectMax at most, and each attempt looks the
// name up. That is right while calls need the connection. While none does, its dialer waits here:
//
//	an attempt is due ──► a call is under way, or was within neededFor ──► at once
//	                  └─► none ──► after unneededMin, then twice as long, up to unneededMax; a call ends the wait

// pace is the pace of the attempts to connect to an address. The zero value is ready for use.
type pace struct {
	calls   atomic.Int64 // under way
	used    atomic.Int64 // when a call began or ended last, in nanoseconds since 1970
	waiting atomic.Int64 // attempts that wait

	mu   sync.Mutex    // guards what follows, and the turns
	wake chan struct{} // closed when a call begins; nil while no attempt waits
}

// turn is when the next attempt of one connection that no call needs is due. Each has its own: gRPC ends an attempt after
// connectMax, and one that had to wait for the others would end before it began.
type turn struct {
	pause time.Duration
	next  time.Time
}

// begin counts a call. Attempts that wait begin; woken reports whether one does.
func (p *pace) begin() (woken bool) {
	p.calls.Add(1)
	p.used.Store(time.Now().UnixNano())
	if p.waiting.Load() == 0 {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.wake != nil {
		close(p.wake)
		p.wake = nil
	}
	return true
}

// end counts a call no more.
func (p *pace) end() {
	p.used.Store(time.Now().UnixNano())
	p.calls.Add(-1)
}

// await waits until an attempt to connect may begin, which has turn t. It returns an error when ctx ends.
func (p *pace) await(ctx context.Context, t *turn) error {
	p.waiting.Add(1) // before the look at calls: begin looks in the other order
	defer p.waiting.Add(-1)
	for {
		wait, wake := p.due(time.Now(), t)
		if wait <= 0 {
			return nil
		}
		timer := time.NewTimer(wait)
		select {
		case <-wake:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// due returns how long an attempt has to wait, at most 0 for not at all, and what is closed when a call begins.
func (p *pace) due(now time.Time, t *turn) (wait time.Duration, wake <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.calls.Load() > 0, now.Sub(time.Unix(0, p.used.Load())) < neededFor:
		t.pause = 0
		return 0, nil
	case t.pause == 0:
		t.pause = unneededMin
		t.next = now.Add(t.pause)
	case !now.Before(t.next):
		t.pause = min(2*t.pause, unneededMax)
		t.next = now.Add(t.pause)
		return 0, nil
	}
	if p.wake == nil {
		p.wake = make(chan struct{})
	}
	return t.next.Sub(now), p.wake
}
