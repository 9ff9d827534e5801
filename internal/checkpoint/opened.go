package checkpoint

import (
	"sync"
	"time"

	"google.golang.org/grpc"

	trystpb "github.com/tryst-rdma/tryst/internal/proto/tryst"
	"github.com/tryst-rdma/tryst/status"
)

// Connection is the connection of a puller at its server. Values of one connection are equal.
type Connection interface {
	// Heard returns a number that changes when something comes on the connection.
	Heard() uint64
	// Collect lets the server find soon what was dropped of responses that it was writing.
	Collect()
	// Cut closes it at once.
	Cut()
}

// opened is a pull at its server: a stream of Open, and its step. The stream's goroutine sends the notices.
type opened struct {
	conn Connection // nil if it is not known

	notice chan struct{} // holds a value when the notice alive is to be sent
	deaf   chan struct{} // closed when the puller does not answer

	mu sync.Mutex
	// All below are guarded by mu.
	vigil   vigil
	endStep func()      // nil before the step begins, and after its end
	timer   *time.Timer // nil before the first use
	closed  bool
}

func newOpened(conn Connection, notices bool) *opened {
	return &opened{
		conn: conn, vigil: vigil{notices: notices},
		notice: make(chan struct{}, 1), deaf: make(chan struct{}),
	}
}

func (o *opened) heard() uint64 {
	if o.conn == nil {
		return 0
	}
	return o.conn.Heard()
}

// begin is called when the puller is about to get its step, which end ends.
func (o *opened) begin(end func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.endStep = end
}

// end ends the step, once: what is kept for the puller is released.
func (o *opened) end() {
	o.mu.Lock()
	end := o.endStep
	o.endStep = nil
	o.mu.Unlock()
	if end != nil {
		end()
	}
}

// versionReplaced is called when another version took the place of the pull's.
func (o *opened) versionReplaced() {
	o.event(func(now time.Time) vigilAct { return o.vigil.replaced(now, o.heard()) })
}

// versionGone is called when the version is not in the catalog any more.
func (o *opened) versionGone() {
	o.end()
	o.event(func(now time.Time) vigilAct { o.vigil.gone(now, o.heard()); return vigilNothing })
}

// answered is called when the puller has called Alive.
func (o *opened) answered() {
	o.event(func(now time.Time) vigilAct { o.vigil.answered(now); return vigilNothing })
}

func (o *opened) tick() {
	o.event(func(now time.Time) vigilAct { return o.vigil.tick(now, o.heard()) })
}

// event passes an event to the vigil and does what it decides.
func (o *opened) event(f func(now time.Time) vigilAct) {
	o.mu.Lock()
	if o.closed {
		o.mu.Unlock()
		return
	}
	act := f(time.Now())
	o.setTimerLocked()
	o.mu.Unlock()
	switch act {
	case vigilNothing:
	case vigilAsk:
		select {
		case o.notice <- struct{}{}:
		default: // the last one was not sent yet
		}
	case vigilEnd:
		o.end()
		close(o.deaf)
		if o.conn != nil {
			o.conn.Cut()
		}
	}
}

func (o *opened) setTimerLocked() {
	at := o.vigil.wake()
	switch {
	case at.IsZero():
		if o.timer != nil {
			o.timer.Stop()
		}
	case o.timer == nil:
		o.timer = time.AfterFunc(time.Until(at), o.tick)
	default:
		o.timer.Reset(time.Until(at))
	}
}

// close ends the vigil, with the stream.
func (o *opened) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	if o.timer != nil {
		o.timer.Stop()
	}
}

func errDeaf() *status.Error {
	return status.Errorf(status.Unavailable, "the puller did not answer for %v", aliveWithin)
}

// attend sends notices until the puller or the server ends the stream, or the version is gone.
func (c *Catalog) attend(p *publication, o *opened, step int64, stream grpc.ServerStreamingServer[trystpb.OpenResponse]) error {
	for {
		select {
		case <-stream.Context().Done():
			return nil // the puller has ended the stream
		case <-c.streams.closing:
			return errClosed()
		case <-o.deaf:
			return errDeaf()
		case <-p.gone:
			return c.dismiss(stream, p, o, step)
		case <-o.notice:
			if err := stream.Send(&trystpb.OpenResponse{StepId: step, Alive: true}); err != nil {
				return err
			}
		}
	}
}

// dismiss tells the puller that its version is gone, and waits until it has ended the stream, or its connection was cut.
func (c *Catalog) dismiss(stream grpc.ServerStreamingServer[trystpb.OpenResponse], p *publication, o *opened, step int64) error {
	if !o.vigil.notices { // it is not changed
		return p.why
	}
	_, newer := p.why.Payload(changedKey)
	err := stream.Send(&trystpb.OpenResponse{StepId: step, Gone: &trystpb.Gone{
		Code: uint32(p.why.Code()), Message: status.ForPeer(p.why.Message()), Newer: newer,
	}})
	if err != nil { // the puller has ended the stream: a receive may have told it that the version is gone
		return p.why
	}
	select {
	case <-stream.Context().Done():
	case <-c.streams.closing:
	case <-o.deaf:
	}
	return p.why
}
