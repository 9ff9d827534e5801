package grpctransport

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
)

// gRPC reads a request as a whole before any code of its method runs, and has one limit of its size for
// all methods: that of graphs. So the bytes of large requests are charged here, where they come in:
//
//	length of a message > maxRequest ──► charged to address and server ──► end of the call: given back
//	                                 └─► beyond a limit: the length becomes one that gRPC refuses
//
// A call ends with the last frame of its response, with a reset of either side, or with the
// connection. Until then gRPC or the method holds the request.

// requests watches the requests of one connection.
type requests struct {
	conn    *connection
	largest int64 // what gRPC accepts

	in, out  frames
	messages map[uint32]*message // by stream; only the goroutine that reads uses what follows
	spare    *message            // for the next stream
	padding  int                 // of the present DATA frame; −1 when its length is the next byte
	data     int                 // bytes of the present DATA frame before the padding

	mu      sync.Mutex       // guards charged
	charged map[uint32]int64 // by stream
	charges atomic.Int64     // number of charged streams
}

// message is where the requests of a stream are that have not ended.
type message struct {
	prefix [messagePrefix]byte
	have   int   // bytes of prefix
	left   int64 // bytes of the content that have not come
}

// messagePrefix is gRPC's prefix of a message: whether it is compressed, and its length.
const messagePrefix = 5

// gzipRatio is the most that gzip makes of a byte.
const gzipRatio = 1032

func newRequests(c *connection) *requests {
	return &requests{
		conn: c, largest: c.quota.addr.server.largest,
		in: frames{skip: prefaceBytes}, messages: make(map[uint32]*message), charged: make(map[uint32]int64),
	}
}

// read looks at bytes that have come, before gRPC does. It changes the length of a message that must be
// refused.
func (r *requests) read(b []byte) error { return r.in.scan(b, r.beginRead, r.payload) }

// wrote looks at bytes that gRPC has sent.
func (r *requests) wrote(b []byte) { _ = r.out.scan(b, r.beginWrite, nil) }

func (r *requests) beginWrite(f frame) bool {
	if f.kind == frameReset || (f.kind == frameHeaders || f.kind == frameData) && f.flags&flagEndStream != 0 {
		r.end(f.stream)
	}
	return false
}

func (r *requests) beginRead(f frame) bool {
	switch f.kind {
	case frameData:
		r.padding, r.data = 0, f.length
		if f.flags&flagPadded != 0 {
			r.padding = -1
		}
		if f.length == 0 && f.flags&flagEndStream != 0 {
			delete(r.messages, f.stream)
		}
		return true
	case frameReset:
		delete(r.messages, f.stream)
		r.end(f.stream)
	}
	return false
}

// payload takes a piece of a DATA frame.
func (r *requests) payload(f frame, b []byte) error {
	if r.padding < 0 {
		r.padding = int(b[0])
		r.data = max(0, f.length-1-r.padding)
		b = b[1:]
	}
	n := min(r.data, len(b))
	r.data -= n
	m := r.messages[f.stream]
	if m == nil {
		m, r.spare = r.spare, nil
		if m == nil {
			m = new(message)
		}
		*m = message{}
	}
	if err := r.take(f.stream, m, b[:n]); err != nil {
		return err
	}
	switch last := r.in.left == 0; {
	case last && f.flags&flagEndStream != 0:
		delete(r.messages, f.stream)
		r.spare = m
	case len(r.messages) >= maxUnfinished && r.messages[f.stream] == nil:
		return fmt.Errorf("the client has %d requests on one connection that it has not ended", len(r.messages))
	default:
		r.messages[f.stream] = m
	}
	return nil
}

// errSplitLength ends a connection whose client has sent the length of a large message in two pieces,
// which no implementation of gRPC does: what gRPC has read cannot be changed any more.
var errSplitLength = errors.New("a large request comes in pieces, and there are too many large requests")

// take follows the messages of a stream.
func (r *requests) take(stream uint32, m *message, b []byte) error {
	for len(b) > 0 {
		if m.left > 0 {
			n := min(m.left, int64(len(b)))
			m.left -= n
			b = b[n:]
			continue
		}
		n := copy(m.prefix[m.have:], b)
		m.have += n
		part := b[:n]
		b = b[n:]
		if m.have < messagePrefix {
			return nil
		}
		m.have = 0
		length := int64(binary.BigEndian.Uint32(m.prefix[1:]))
		m.left = length
		size := length
		if m.prefix[0] != 0 {
			size = min(length*gzipRatio, r.largest)
		}
		if size <= maxRequest || length > r.largest || r.charge(stream, size) {
			continue
		}
		if len(part) < 4 {
			return errSplitLength
		}
		for i := len(part) - 4; i < len(part); i++ {
			part[i] = 0xff
		}
	}
	return nil
}

// charge charges a large request. It returns false, and logs it, when there are too many.
func (r *requests) charge(stream uint32, n int64) bool {
	if reason := r.conn.quota.takeLarge(n); reason != "" {
		r.conn.quota.addr.server.refusals.add(r.conn.Conn.RemoteAddr(), refusal{kind: refusedLarge, reason: reason})
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.charged[stream] += n
	r.charges.Store(int64(len(r.charged)))
	return true
}

// end gives back what a stream was charged with.
func (r *requests) end(stream uint32) {
	if r.charges.Load() == 0 {
		return
	}
	r.mu.Lock()
	n := r.charged[stream]
	delete(r.charged, stream)
	r.charges.Store(int64(len(r.charged)))
	r.mu.Unlock()
	r.conn.quota.giveLarge(n)
}

// takeLarge charges n bytes of a large request, or returns why it does not.
func (c *connQuota) takeLarge(n int64) (refused string) {
	a, q := c.addr, c.addr.server
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case c.closed:
		return "the connection has ended"
	case q.ofLarge+n > q.large:
		return fmt.Sprintf("a request of %d bytes; %d bytes of large requests are under way, and %d may be (8 times max-graph-bytes)", n, q.ofLarge, q.large)
	case a.ofLarge+n > q.large/2:
		return fmt.Sprintf("a request of %d bytes; %d bytes of large requests of this address are under way, and %d may be (4 times max-graph-bytes)", n, a.ofLarge, q.large/2)
	}
	q.ofLarge += n
	a.ofLarge += n
	c.ofLarge += n
	return ""
}

func (c *connQuota) giveLarge(n int64) {
	c.addr.server.mu.Lock()
	defer c.addr.server.mu.Unlock()
	if !c.closed {
		c.giveLargeLocked(n)
	}
}

func (c *connQuota) giveLargeLocked(n int64) {
	c.ofLarge -= n
	c.addr.ofLarge -= n
	c.addr.server.ofLarge -= n
}
