package grpctransport

import (
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// unread ends a connection whose client does not read its responses. A client may answer pings and keep
// the windows of HTTP/2 closed, and what its responses are charged with is then missing to others. While
// responses are charged, the connection brings responseProgress of them in each responseTime.
type unread struct {
	conn   net.Conn // nil in tests without any
	refuse func(kind refusalKind, reason string)
	sent   atomic.Int64 // bytes of responses that were written

	mu      sync.Mutex // guards what follows
	timer   *time.Timer
	held    int       // responses that are charged
	rested  bool      // held was 0 since the last look
	mark    int64     // sent at the last look
	looked  time.Time // when it was
	watched bool      // look will run
	closed  bool
}

// begin counts a response that is charged.
func (u *unread) begin() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.held++
	if u.watched || u.closed || u.conn == nil {
		return
	}
	u.watched = true
	u.mark, u.looked = u.sent.Load(), time.Now()
	if u.timer == nil {
		u.timer = time.AfterFunc(responseTime, u.look)
	} else {
		u.timer.Reset(responseTime)
	}
}

// end counts a response that was written or dropped.
func (u *unread) end() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.held--
	u.rested = u.rested || u.held == 0
}

// look ends the connection when it was not read since the last look.
func (u *unread) look() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.watched = false
	if u.closed || u.held == 0 {
		u.rested = false
		return
	}
	now, sent := time.Now(), u.sent.Load()
	late := now.Sub(u.looked) >= 2*responseTime // this process stood still
	if !u.rested && !late && sent-u.mark < responseProgress {
		u.refuse(refusedUnread, fmt.Sprintf("%d responses of a connection wait, and its client read less than %d bytes in %v", u.held, responseProgress, responseTime))
		u.closed = true
		_ = u.conn.Close() // gRPC finds it closed
		return
	}
	u.watched, u.rested, u.mark, u.looked = true, false, sent, now
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
