package grpctransport

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// gRPC holds what comes of a request until its call ends, whether the rest comes or not, and has one
// limit of its size for all methods: that of graphs. So requests are charged to address and server here,
// where their bytes come in:
//
//	HEADERS ──► callBytes                    forced; the method's handler refuses (guard.go), and a flood
//	                                         of them ends the connection
//	DATA ─────► the length of each message   beyond a limit the length becomes one that gRPC refuses
//	      └───► what a frame takes           beyond a limit the request ends here
//	no progress for requestTime ───────────► the request ends here
//
// A request ends here by an empty DATA frame with END_STREAM, which gRPC reads as if the client had sent
// it: the method fails, and the client gets its error. All charges of a call end with the last frame of
// its response, with a reset of either side, or with the connection.

// requests watches the requests of one connection.
type requests struct {
	conn    *connection
	largest int64 // what gRPC accepts

	in, out frames
	padding int    // of the present DATA frame; −1 when its length is the next byte
	data    int    // bytes of the present DATA frame before the padding
	ending  []byte // frames that gRPC reads before the next one of the client

	mu       sync.Mutex // guards what follows
	calls    map[uint32]*request
	spare    *request // for the next call
	newest   uint32   // stream
	charged  int64    // of all calls
	arriving int      // requests that have not come whole
	late     []uint32 // streams whose requests must end
	watched  bool     // sweep will run
	timer    *time.Timer
	waking   bool   // sweep has ended the present read of the connection
	frames   uint64 // that have come whole
	half     bool   // a part of a frame has come
	halfSeen bool   // by the last sweep, with
	halfAt   uint64 // frames
	stalled  bool   // the frame does not come
	closed   bool
}

// request is what has come of a call's request.
type request struct {
	prefix [messagePrefix]byte
	have   int   // bytes of prefix
	left   int64 // bytes of the message that have not come

	charged  int64
	bytes    int64 // that have come
	declared int64 // by the lengths of messages
	frames   int64 // DATA frames that have come
	messages bool  // a message has come whole
	ended    bool  // the request has
	answered bool  // the response has begun
	late     bool  // it will end in requests.late
	arriving bool  // counted in requests.arriving
	seen     bool  // by the last sweep, with
	mark     int64 // bytes
}

// messagePrefix is gRPC's prefix of a message: whether it is compressed, and its length.
const messagePrefix = 5

func newRequests(c *connection) *requests {
	return &requests{conn: c, largest: c.quota.addr.server.largest, in: frames{skip: prefaceBytes}, calls: make(map[uint32]*request)}
}

// Read reads from the connection for gRPC.
func (r *requests) Read(b []byte) (int, error) {
	for {
		if n := r.readEnding(b); n > 0 {
			return n, nil
		}
		r.watch()
		n, err := r.conn.Conn.Read(b[:r.limit(len(b))])
		if n > 0 {
			if wrong := r.read(b[:n]); wrong != nil {
				return 0, wrong
			}
			return n, err
		}
		if errors.Is(err, os.ErrDeadlineExceeded) && r.woken() {
			if wrong := r.wrong(); wrong != nil {
				return 0, wrong
			}
			continue
		}
		return n, err
	}
}

// readEnding reads the frames that end requests, between two frames of the client.
func (r *requests) readEnding(b []byte) int {
	if len(r.ending) == 0 && r.in.between() {
		r.mu.Lock()
		for _, stream := range r.late {
			if q := r.calls[stream]; q != nil && !q.ended {
				q.ended = true
				r.countLocked(q)
				r.ending = appendFrame(r.ending, frame{kind: frameData, flags: flagEndStream, stream: stream})
			}
		}
		r.late = r.late[:0]
		r.mu.Unlock()
	}
	n := copy(b, r.ending)
	r.ending = r.ending[n:]
	return n
}

// limit returns how many of n bytes to read: when a request must end, no more than to the end of a frame. A client that
// sends without pause would otherwise be in the midst of one at each read.
func (r *requests) limit(n int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.ending) == 0 && len(r.late) == 0 {
		return n
	}
	return min(n, r.in.rest())
}

// read looks at bytes that have come, before gRPC does. It changes the length of a message that must be
// refused.
func (r *requests) read(b []byte) error {
	err := r.in.scan(b, r.beginRead, r.payload)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.half = !r.in.between()
	if err == nil {
		err = r.floodLocked()
	}
	return err
}

// floodLocked returns why the connection must end: its client begins calls faster than they are refused, or does
// not read that they are. gRPC holds each until then.
func (r *requests) floodLocked() error {
	a := r.conn.quota.addr
	if r.charged <= int64(a.requests)/floodPart || a.taken.Load() <= floodFactor*int64(a.requests) {
		return nil
	}
	reason := fmt.Sprintf("%d calls of a connection wait until they are refused, and those of its address take %d times what they may", len(r.calls), floodFactor)
	r.refuse(refusedBytes, reason)
	return errors.New(reason)
}

// wrote looks at bytes that gRPC has sent.
func (r *requests) wrote(b []byte) { _ = r.out.scan(b, r.beginWrite, nil) }

func (r *requests) beginWrite(f frame) bool {
	if f.kind == frameData {
		r.conn.quota.unread.sent.Add(int64(f.length))
	}
	switch {
	case f.kind == frameReset || (f.kind == frameHeaders || f.kind == frameData) && f.flags&flagEndStream != 0:
		r.end(f.stream)
	case f.kind == frameHeaders:
		r.mu.Lock()
		if q := r.calls[f.stream]; q != nil {
			q.answered = true
			r.countLocked(q)
		}
		r.mu.Unlock()
	}
	return false
}

func (r *requests) beginRead(f frame) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.frames++
	switch f.kind {
	case frameHeaders:
		if f.stream > r.newest {
			r.beginLocked(f)
		}
		r.endedLocked(f)
	case frameData:
		r.padding, r.data = 0, f.length
		if f.flags&flagPadded != 0 {
			r.padding = -1
		}
		if f.length == 0 {
			r.endedLocked(f)
		}
		return true
	case frameReset:
		r.endLocked(f.stream)
	}
	return false
}

// beginLocked begins a call.
func (r *requests) beginLocked(f frame) {
	r.newest = f.stream
	if r.closed {
		return
	}
	q := r.spare
	if r.spare = nil; q == nil {
		q = new(request)
	}
	*q = request{charged: callBytes + int64(f.length)*headerFactor}
	r.calls[f.stream] = q
	r.conn.quota.unread.called()
	r.charged += q.charged
	r.conn.quota.forceRequest(q.charged)
	r.countLocked(q)
}

// endedLocked looks whether a frame ends the request of its call.
func (r *requests) endedLocked(f frame) {
	if q := r.calls[f.stream]; q != nil && f.flags&flagEndStream != 0 {
		q.ended = true
		r.countLocked(q)
	}
}

// countLocked counts the requests that have not come whole. One whose client sends further messages has
// come when its response has begun.
func (r *requests) countLocked(q *request) {
	now := !q.ended && (!q.answered || !q.messages || q.left != 0 || q.have != 0)
	if now == q.arriving {
		return
	}
	q.arriving, q.seen = now, false
	if now {
		r.arriving++
	} else {
		r.arriving--
	}
}

// payload takes a part of a DATA frame.
func (r *requests) payload(f frame, b []byte) error {
	first := len(b)+r.in.left == f.length
	if r.padding < 0 {
		r.padding = int(b[0])
		r.data = max(0, f.length-1-r.padding)
		b = b[1:]
	}
	n := min(r.data, len(b))
	r.data -= n
	r.mu.Lock()
	defer r.mu.Unlock()
	q := r.calls[f.stream]
	if q == nil || q.ended {
		return nil // gRPC drops it
	}
	if first {
		q.frames++
	}
	q.bytes += int64(n)
	if err := r.takeLocked(q, b[:n]); err != nil {
		return err
	}
	if reason := r.chargeLocked(q); reason != "" && !q.late {
		r.refuse(refusedBytes, reason)
		r.stopLocked(f.stream, q)
	}
	if r.in.left == 0 {
		r.endedLocked(f)
	}
	r.countLocked(q)
	return nil
}

// errSplitLength ends a connection whose client has sent the length of a message in two parts, which no
// implementation of gRPC does: what gRPC has read cannot be changed any more.
var errSplitLength = errors.New("the length of a request comes in parts, and there are too many requests")

// takeLocked follows the messages of a request.
func (r *requests) takeLocked(q *request, b []byte) error {
	for len(b) > 0 {
		if q.left > 0 {
			n := min(q.left, int64(len(b)))
			q.left -= n
			q.messages = q.messages || q.left == 0
			b = b[n:]
			continue
		}
		n := copy(q.prefix[q.have:], b)
		q.have += n
		part := b[:n]
		b = b[n:]
		if q.have < messagePrefix {
			return nil
		}
		q.have = 0
		q.left = int64(binary.BigEndian.Uint32(q.prefix[1:]))
		q.messages = q.messages || q.left == 0
		if q.left > r.largest {
			continue // gRPC refuses it
		}
		q.declared += messagePrefix + q.left
		reason := r.chargeLocked(q)
		if reason == "" {
			continue
		}
		q.declared -= q.left
		r.refuse(refusedBytes, reason)
		if len(part) < 4 {
			return errSplitLength
		}
		for i := len(part) - 4; i < len(part); i++ {
			part[i] = 0xff
		}
	}
	return nil
}

// chargeLocked charges a request with what it takes, or returns why it does not.
func (r *requests) chargeLocked(q *request) (refused string) {
	size := max(q.bytes, q.declared) + q.frames*frameBytes
	n := size - (q.charged - callBytes + firstBytes)
	if n <= 0 || r.closed {
		return ""
	}
	n = (n + chargeStep - 1) / chargeStep * chargeStep
	if reason := r.conn.quota.takeRequest(n, size); reason != "" {
		return reason
	}
	q.charged += n
	r.charged += n
	return ""
}

// end gives back what a call was charged with.
func (r *requests) end(stream uint32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.endLocked(stream)
}

func (r *requests) endLocked(stream uint32) {
	q := r.calls[stream]
	if q == nil {
		return
	}
	delete(r.calls, stream)
	r.conn.quota.unread.ended()
	q.ended = true
	r.countLocked(q)
	r.charged -= q.charged
	r.conn.quota.giveRequest(q.charged)
	r.spare = q
}

// close gives back all charges when the connection ends.
func (r *requests) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	if r.timer != nil {
		r.timer.Stop()
	}
	clear(r.calls)
	r.conn.quota.giveRequest(r.charged)
	r.charged, r.arriving = 0, 0
}

// watch begins the time of what has not come, when the connection waits for it.
func (r *requests) watch() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.watched || r.closed || r.arriving == 0 && !r.half {
		return
	}
	r.watched = true
	if r.timer == nil {
		r.timer = time.AfterFunc(requestTime, r.sweep)
	} else {
		r.timer.Reset(requestTime)
	}
}

// sweep ends requests that came to nothing since the last sweep, and a connection in the midst of a frame.
func (r *requests) sweep() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.watched = false
	if r.closed {
		return
	}
	for stream, q := range r.calls {
		switch {
		case !q.arriving || q.late:
		case q.seen && q.bytes-q.mark < requestProgress:
			r.stopLocked(stream, q)
		default:
			q.seen, q.mark = true, q.bytes
		}
	}
	r.stalled = r.half && r.halfSeen && r.halfAt == r.frames
	r.halfSeen, r.halfAt = r.half, r.frames
	if n := len(r.late); n > 0 || r.stalled {
		reason := fmt.Sprintf("%d requests of a connection have not come whole, and brought less than %d bytes in %v", n, requestProgress, requestTime)
		if r.stalled {
			reason = fmt.Sprintf("half a frame of HTTP/2 came, and the rest did not in %v", requestTime)
		}
		r.refuse(refusedLate, reason)
		r.waking = true
		_ = r.conn.SetReadDeadline(time.Unix(1, 0)) // fails only for a closed connection
	}
	if r.arriving > 0 || r.half {
		r.watched = true
		r.timer.Reset(requestTime)
	}
}

// stopLocked ends a request before its end has come, as soon as no frame is half read.
func (r *requests) stopLocked(stream uint32, q *request) {
	q.late = true
	r.late = append(r.late, stream)
}

// woken reports whether sweep has ended a read, and lets the next one wait again.
func (r *requests) woken() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.waking {
		return false
	}
	r.waking = false
	return r.conn.SetReadDeadline(time.Time{}) == nil
}

// wrong returns why the connection must end.
func (r *requests) wrong() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stalled {
		return fmt.Errorf("half a frame came, and the rest did not in %v", requestTime)
	}
	return nil
}

// refuse logs and counts a refused request.
func (r *requests) refuse(kind refusalKind, reason string) {
	r.conn.quota.addr.server.refuseRequest(r.conn.Conn.RemoteAddr(), kind, reason)
}

// RequestStats has what the requests under way of a server take, how many were refused, and how many
// connections were not read. The zero value is for one server. It is safe for concurrent use.
type RequestStats struct {
	bytes               atomic.Int64
	crowd, late, growth atomic.Uint64
	unread              atomic.Uint64
}

// Bytes returns what the requests under way take, in bytes.
func (s *RequestStats) Bytes() int64 { return s.bytes.Load() }

// Refused returns how many requests were refused, by reason: "bytes" when others took all that they may,
// "late" when the rest did not come, "size" when a message would have taken too much when parsed.
func (s *RequestStats) Refused() map[string]uint64 {
	return map[string]uint64{"bytes": s.crowd.Load(), "late": s.late.Load(), "size": s.growth.Load()}
}

// Unread returns how many connections were ended since their clients did not read their responses.
func (s *RequestStats) Unread() uint64 { return s.unread.Load() }
