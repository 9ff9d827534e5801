package grpctransport

import (
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// gRPC holds what has come of a response until it is parsed, up to maxMessage. A peer that this process does not
// know from its settings could so take all memory. So the bytes of its responses are reserved here, where they
// come in, as long as gRPC holds them:
//
//	HEADERS of a call are sent ──► nothing
//	DATA ────────────────────────► what the frame takes, in steps
//	      └── beyond the limit ──► gRPC reads RST_STREAM: the call ends with ResourceExhausted
//	the stream ends ─────────────► its bytes have landed: its call parses them, or drops them
//	a call returns ──────────────► landed bytes are given back
//
// Which stream belongs to which call is not known here. As many landed responses are kept as calls have no stream any
// more and have not returned, the largest ones. So what is reserved is no less than what gRPC holds, but for firstBytes
// of each response.

// answers has the responses on the connections that one grpc.ClientConn makes. A nil *answers has no limit.
type answers struct {
	from tensor.Reserver

	mu     sync.Mutex // guards what follows, and the streams of all connections
	calls  int        // that have not returned
	open   int        // streams
	landed []*answer  // of streams that have ended
	reason error      // why one was refused last
}

// answer is what has come of a response.
type answer struct {
	prefix [messagePrefix]byte
	have   int   // bytes of prefix
	left   int64 // bytes of the message that have not come

	now  int64 // what the present message takes
	most int64 // what an earlier one took

	reserved int64
	held     []*tensor.Buffer
}

// newAnswers returns nil when from is nil.
func newAnswers(from tensor.Reserver) *answers {
	if from == nil {
		return nil
	}
	return &answers{from: from}
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

// trimLocked gives back what no call can hold.
func (a *answers) trimLocked() {
	for len(a.landed) > max(a.calls-a.open, 0) {
		least := 0
		for i, q := range a.landed {
			if q.reserved < a.landed[least].reserved {
				least = i
			}
		}
		last := len(a.landed) - 1
		a.landed[least].release()
		a.landed[least], a.landed[last] = a.landed[last], nil
		a.landed = a.landed[:last]
	}
}

func (q *answer) release() {
	for _, b := range q.held {
		b.Release()
	}
	q.held, q.reserved = nil, 0
}

// reserveLocked reserves what a response takes.
func (a *answers) reserveLocked(q *answer) error {
	n := q.most + q.now - q.reserved - firstBytes
	if n <= 0 {
		return nil
	}
	n = max(n, chargeStep, q.reserved/responseSteps)
	b, err := a.from.Reserve(n)
	if err != nil {
		return err
	}
	q.held, q.reserved = append(q.held, b), q.reserved+n
	return nil
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
			q.now += frameTakes(f.length)
		}
		if err := c.all.reserveLocked(q); err != nil {
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

// payload takes a piece of a DATA frame.
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
	q.took(b[:n])
	if c.in.left == 0 && f.flags&flagEndStream != 0 {
		c.endLocked(f.stream)
	}
	return nil
}

// took follows the messages of a response.
func (q *answer) took(b []byte) {
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
			q.left = int64(binary.BigEndian.Uint32(q.prefix[1:]))
		}
		if q.left == 0 {
			q.most, q.now = max(q.most, q.now), 0
		}
	}
}

// endLocked ends a stream.
func (c *answerConn) endLocked(stream uint32) {
	q := c.streams[stream]
	if q == nil {
		return
	}
	delete(c.streams, stream)
	c.all.open--
	c.all.landed = append(c.all.landed, q)
	c.all.trimLocked()
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

// explain returns the reason of a call that ended since its response was refused here.
func (a *answers) explain(err error) error {
	if a == nil || err == nil {
		return err
	}
	if s := grpcstatus.Convert(err); s.Code() != codes.ResourceExhausted || !strings.Contains(s.Message(), "ENHANCE_YOUR_CALM") {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.reason == nil {
		return err // of the peer
	}
	return ownError{status.From(a.reason).WithPrefix("a response is larger than what this process has left")}
}

// explainStream returns a stream with the same reasons.
func (a *answers) explainStream(s grpc.ClientStream) grpc.ClientStream {
	if a == nil {
		return s
	}
	return explainedStream{s, a}
}

type explainedStream struct {
	grpc.ClientStream
	answers *answers
}

// RecvMsg implements grpc.ClientStream.
func (s explainedStream) RecvMsg(m any) error { return s.answers.explain(s.ClientStream.RecvMsg(m)) }

// noGzip refuses compressed responses, which become larger than what came. This process requests none. It implements
// grpc.Decompressor.
type noGzip struct{}

// Do implements grpc.Decompressor.
func (noGzip) Do(io.Reader) ([]byte, error) {
	return nil, errors.New("compressed responses of this peer are refused")
}

// Type implements grpc.Decompressor.
func (noGzip) Type() string { return "gzip" }
