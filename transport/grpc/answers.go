package grpctransport

import (
	"encoding/binary"
	"sync"

	"github.com/tryst-rdma/tryst/tensor"
)

// gRPC holds what has come of a response until it is parsed, so peers could take all memory. So the bytes of
// responses are reserved here, where they come in, as long as gRPC holds them:
//
//	HEADERS of a call are sent ──► nothing
//	DATA ────────────────────────► what the frame takes
//	      └── beyond the limit ──► gRPC reads RST_STREAM: the call ends with ResourceExhausted
//	a message is whole ──────────► it waits until it is parsed, then it is given back
//	the stream ends ─────────────► half a message is given back; a whole one waits for its call, which parses or drops it
//	a call returns ──────────────► what it has not parsed is given back
//
// Which stream belongs to which call is not known here. A message that is parsed is one of its length: all of a length
// take about the same. Of streams that have ended, as many keep their messages as calls have no stream any more and have
// not returned, those with the largest. So what is reserved is no less than what gRPC holds, but for firstBytes of each
// response.

// answers has the responses on the connections that one grpc.ClientConn makes. A nil *answers has no limit.
type answers struct {
	from tensor.Reserver

	mu     sync.Mutex // guards what follows, and the streams of all connections
	calls  int        // that have not returned
	open   int        // streams
	landed []*answer  // of streams that have ended, with messages that are not parsed
	whole  map[int64][]*message
	reason error // why one was refused last

	used     int64 // what gRPC holds
	reserved int64 // at least used, unless that was refused
	held     []reservation
}

// reservation is a part of what is reserved.
type reservation struct {
	bytes  int64
	buffer *tensor.Buffer
}

// answer is what has come of a response.
type answer struct {
	prefix     [messagePrefix]byte
	have       int   // bytes of prefix
	length     int64 // of the present message
	left       int64 // bytes of it that have not come
	compressed bool  // the present message is

	now    int64      // what the present message takes
	whole  []*message // those that have come whole, and are not parsed
	held   int64      // now, and what those of whole take
	landed int        // place in answers.landed, from 1; 0 while the stream is open
}

// message is one that has come whole.
type message struct {
	of                 *answer
	length, takes      int64
	inAnswer, ofLength int // places in of.whole and in answers.whole
}

// newAnswers returns nil when from is nil.
func newAnswers(from tensor.Reserver) *answers {
	if from == nil {
		return nil
	}
	return &answers{from: from, whole: make(map[int64][]*message)}
}

// begin counts a call.
func (a *answers) begin() {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.calls++
}

// end counts a call no more, which has parsed its response.
func (a *answers) end() {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.calls--
	a.trimLocked()
}

// parsed gives back a message of n bytes, which gRPC holds no more.
func (a *answers) parsed(n int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := a.whole[n]
	if len(all) == 0 {
		return // its stream was reset
	}
	m := all[len(all)-1]
	a.dropLocked(m)
	if q := m.of; q.landed > 0 && len(q.whole) == 0 {
		a.forgetLocked(q)
	}
	a.giveBackLocked()
}

// trimLocked gives back what no call can hold.
func (a *answers) trimLocked() {
	for len(a.landed) > max(a.calls-a.open, 0) {
		least := a.landed[0]
		for _, q := range a.landed {
			if q.held < least.held {
				least = q
			}
		}
		for len(least.whole) > 0 {
			a.dropLocked(least.whole[len(least.whole)-1])
		}
		a.forgetLocked(least)
	}
	a.giveBackLocked()
}

// forgetLocked forgets a response whose stream has ended.
func (a *answers) forgetLocked(q *answer) {
	last := len(a.landed) - 1
	other := a.landed[last]
	a.landed[q.landed-1], other.landed = other, q.landed
	a.landed[last] = nil
	a.landed = a.landed[:last]
}

// dropLocked takes a message out of the lists.
func (a *answers) dropLocked(m *message) {
	a.addLocked(m.of, -m.takes)
	m.of.whole = without(m.of.whole, m.inAnswer, func(last *message) { last.inAnswer = m.inAnswer })
	all := without(a.whole[m.length], m.ofLength, func(last *message) { last.ofLength = m.ofLength })
	if len(all) == 0 {
		delete(a.whole, m.length)
	} else {
		a.whole[m.length] = all
	}
}

// without moves the last message to place i, where moved notes it, and returns all but the one that was there.
func without(all []*message, i int, moved func(*message)) []*message {
	last := len(all) - 1
	moved(all[last])
	all[i], all[last] = all[last], nil
	return all[:last]
}

// addLocked adds to what a response takes.
func (a *answers) addLocked(q *answer, n int64) {
	before := max(q.held-firstBytes, 0)
	q.held += n
	a.used += max(q.held-firstBytes, 0) - before
}

// reserveLocked reserves what gRPC holds.
func (a *answers) reserveLocked() error {
	n := a.used - a.reserved
	if n <= 0 {
		return nil
	}
	n = max(n, answerStep, a.reserved/answerSteps)
	b, err := a.from.Reserve(n)
	if err != nil {
		return err
	}
	a.held, a.reserved = append(a.held, reservation{n, b}), a.reserved+n
	return nil
}

// giveBackLocked gives back what is reserved and not used.
func (a *answers) giveBackLocked() {
	for last := len(a.held) - 1; last >= 0 && a.reserved-a.held[last].bytes >= a.used; last-- {
		a.held[last].buffer.Release()
		a.reserved -= a.held[last].bytes
		a.held[last] = reservation{}
		a.held = a.held[:last]
	}
}

// connect returns the watch of a connection.
func (a *answers) connect() *answerConn {
	if a == nil {
		return nil
	}
	return &answerConn{all: a, out: frames{skip: prefaceBytes}, streams: make(map[uint32]*answer)}
}

// answerConn watches one connection. A nil *answerConn watches nothing. gRPC reads on one goroutine and writes on
// one.
type answerConn struct {
	all     *answers
	in, out frames
	padding int    // of the present DATA frame; −1 when its length is the next byte
	data    int    // bytes of the present DATA frame before the padding
	ending  []byte // frames that gRPC reads before the next one of the peer

	streams map[uint32]*answer // guarded by all.mu
	closed  bool               // guarded by all.mu
}

// readEnding reads the frames that end calls, between two frames of the peer.
func (c *answerConn) readEnding(b []byte) int {
	if c == nil || len(c.ending) == 0 || !c.in.between() {
		return 0
	}
	n := copy(b, c.ending)
	c.ending = c.ending[n:]
	return n
}

// limit returns how many of n bytes to read: when frames of readEnding wait, no more than to the end of a frame.
func (c *answerConn) limit(n int) int {
	if c == nil || len(c.ending) == 0 {
		return n
	}
	return min(n, c.in.rest())
}

// read looks at bytes that have come, before gRPC does.
func (c *answerConn) read(b []byte) {
	if c == nil {
		return
	}
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	_ = c.in.scan(b, c.beginRead, c.payload) // neither fails
}

// wrote looks at bytes that gRPC sends.
func (c *answerConn) wrote(b []byte) {
	if c == nil {
		return
	}
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	_ = c.out.scan(b, c.beginWrite, nil) // never fails
}

func (c *answerConn) beginWrite(f frame) bool {
	switch f.kind {
	case frameHeaders:
		if c.streams[f.stream] == nil && !c.closed {
			c.streams[f.stream] = new(answer)
			c.all.open++
		}
	case frameReset:
		c.endLocked(f.stream)
	}
	return false
}

func (c *answerConn) beginRead(f frame) bool {
	switch f.kind {
	case frameHeaders:
		if f.flags&flagEndStream != 0 {
			c.endLocked(f.stream)
		}
	case frameReset:
		c.endLocked(f.stream)
	case frameData:
		q := c.streams[f.stream]
		if q == nil {
			return false // gRPC drops it
		}
		c.padding, c.data = 0, f.length
		if f.flags&flagPadded != 0 {
			c.padding = -1
		}
		if f.length > 0 {
			takes := frameTakes(f.length)
			if q.compressed {
				takes += int64(f.length) // laterGzip copies it
			}
			q.now += takes
			c.all.addLocked(q, takes)
		}
		if err := c.all.reserveLocked(); err != nil {
			c.all.reason = err
			c.ending = appendFrame(c.ending, frame{kind: frameReset, stream: f.stream, length: 4})
			c.ending = binary.BigEndian.AppendUint32(c.ending, enhanceYourCalm)
			c.endLocked(f.stream)
			return false
		}
		if f.length == 0 && f.flags&flagEndStream != 0 {
			c.endLocked(f.stream)
		}
		return true
	}
	return false
}

// frameTakes returns what the content of a frame takes until its message is parsed: gRPC's buffers have fixed sizes.
func frameTakes(length int) int64 {
	if length > copyLimit {
		return max(int64(length), frameSize) + frameBytes
	}
	return int64(length) + frameBytes
}

// payload takes a part of a DATA frame.
func (c *answerConn) payload(f frame, b []byte) error {
	q := c.streams[f.stream]
	if q == nil {
		return nil
	}
	if c.padding < 0 {
		c.padding = int(b[0])
		c.data = max(0, f.length-1-c.padding)
		b = b[1:]
	}
	n := min(c.data, len(b))
	c.data -= n
	c.all.tookLocked(q, b[:n])
	if c.in.left == 0 && f.flags&flagEndStream != 0 {
		c.endLocked(f.stream)
	}
	return nil
}

// tookLocked follows the messages of a response.
func (a *answers) tookLocked(q *answer, b []byte) {
	for len(b) > 0 {
		if q.left > 0 {
			n := min(q.left, int64(len(b)))
			q.left -= n
			b = b[n:]
		} else {
			n := copy(q.prefix[q.have:], b)
			q.have += n
			b = b[n:]
			if q.have < messagePrefix {
				return
			}
			q.have = 0
			q.compressed = q.prefix[0] != 0
			q.length = int64(binary.BigEndian.Uint32(q.prefix[1:]))
			q.left = q.length
		}
		if q.left == 0 {
			a.completeLocked(q)
		}
	}
}

// completeLocked makes the present message of a response a whole one.
func (a *answers) completeLocked(q *answer) {
	all := a.whole[q.length]
	m := &message{of: q, length: q.length, takes: q.now + wholeBytes, inAnswer: len(q.whole), ofLength: len(all)}
	q.whole, a.whole[q.length] = append(q.whole, m), append(all, m)
	q.now, q.compressed = 0, false
	a.addLocked(q, wholeBytes)
}

// endLocked ends a stream.
func (c *answerConn) endLocked(stream uint32) {
	q := c.streams[stream]
	if q == nil {
		return
	}
	delete(c.streams, stream)
	a := c.all
	a.open--
	a.addLocked(q, -q.now)
	q.now = 0
	if len(q.whole) > 0 {
		a.landed = append(a.landed, q)
		q.landed = len(a.landed)
	}
	a.trimLocked()
}

// close ends all streams with the connection.
func (c *answerConn) close() {
	if c == nil {
		return
	}
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	c.closed = true
	for stream := range c.streams {
		c.endLocked(stream)
	}
}
