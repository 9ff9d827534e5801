package grpctransport

import (
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// unread ends a connection whose client does not read its responses. A client may answer pings and keep
// the windows of HTTP/2 closed, and what its calls and responses are charged with is then missing to others.
// While a response waits, the connection brings responseProgress of them in each responseTime. One waits
//
//   - while it is charged (quota.go), also one of many of a stream
//   - from the return of its handler (guard.go) until its last frame is written or its call is reset
type unread struct {
	conn   net.Conn // nil in tests without any
	refuse func(kind refusalKind, reason string)
	sent   atomic.Int64 // bytes of responses that were written

	charged atomic.Int64 // responses that are
	calls   atomic.Int64 // that have begun and not ended, without those whose handler runs
	rested  atomic.Bool  // nothing waited at some time since the last look
	watched atomic.Bool  // look will run; set with mu held

	mu     sync.Mutex // guards what follows
	timer  *time.Timer
	mark   int64     // sent at the last look
	looked time.Time // when it was
	closed bool
}

// begin counts a response that is charged, and end one that was written or dropped.
func (u *unread) begin() {
	u.charged.Add(1)
	u.watch()
}

func (u *unread) end() { u.rest(u.charged.Add(-1)) }

// called counts a call, and ended the end of one. serve is called when its handler begins, and returned
// when it returns.
func (u *unread) called() { u.calls.Add(1) }
func (u *unread) ended()  { u.rest(u.calls.Add(-1)) }
func (u *unread) serve()  { u.calls.Add(-1) }
func (u *unread) returned() {
	u.calls.Add(1)
	u.watch()
}

// waiting returns how many responses wait, at least. A handler that goes on after its call was reset makes it
// smaller.
func (u *unread) waiting() int64 { return max(u.charged.Load(), u.calls.Load()) }

// rest notes that nothing waits.
func (u *unread) rest(left int64) {
	if left <= 0 && u.waiting() <= 0 && u.watched.Load() {
		u.rested.Store(true)
	}
}

// watch lets look run after responseTime.
func (u *unread) watch() {
	if u.conn == nil || u.watched.Load() {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.watched.Load() || u.closed {
		return
	}
	u.rested.Store(false)
	u.watched.Store(true)
	u.mark, u.looked = u.sent.Load(), time.Now()
	if u.timer == nil {
		u.timer = time.AfterFunc(responseTime, u.look)
	} else {
		u.timer.Reset(responseTime)
	}
}

// look ends the connection when it was not read since the last look.
func (u *unread) look() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.watched.Store(false) // before waiting, so that a response that comes meanwhile is seen here or begins a watch
	waiting := u.waiting()
	if u.closed || waiting <= 0 {
		return
	}
	now, sent := time.Now(), u.sent.Load()
	late := now.Sub(u.looked) >= 2*responseTime // this process stood still
	if !u.rested.Load() && !late && sent-u.mark < responseProgress {
		u.refuse(refusedUnread, fmt.Sprintf("%d responses of a connection wait, and its client read less than %d bytes in %v", waiting, responseProgress, responseTime))
		u.closed = true
		_ = u.conn.Close() // gRPC finds it closed
		return
	}
	u.rested.Store(false)
	u.watched.Store(true)
	u.mark, u.looked = sent, now
	u.timer.Reset(responseTime)
}

// close ends the watch with the connection.
func (u *unread) close() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.closed = true
	if u.timer != nil {
		u.timer.Stop()
	}
}
