package grpctransport

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

// A connection can be dead without an error: the peer is stopped, or a relay in between acknowledges
// TCP for a peer that is gone. TCP keepalive sees none of that. So a connection that calls wait for is
// probed when it is silent, and closed when nothing comes then:
//
//	calls wait, nothing read for KeepaliveTime ──► probe ──► something is read: the peer lives
//	                                                └──► nothing within KeepaliveTimeout: closed
//
// The probe is a call of the health service. Every gRPC server answers it, if only with Unimplemented,
// and without its workers: TensorFlow's answers while all its threads compute. An HTTP/2 ping would do
// the same, but TensorFlow's servers close connections with more than one in five minutes.

// silence watches the connections that one grpc.ClientConn makes.
type silence struct {
	conn    *grpc.ClientConn
	answers *answers      // of conn
	after   time.Duration // KeepaliveTime; 0 for no watch
	within  time.Duration // KeepaliveTimeout

	calls atomic.Int64 // under way
	armed atomic.Bool  // the timer runs, or a look is under way

	mu     sync.Mutex // guards what follows
	conns  map[*firstFrameConn]struct{}
	timer  *time.Timer
	closed bool
	looks  sync.WaitGroup

	ctx  context.Context // of the probes; ends in close
	stop context.CancelFunc
}

func newSilence(o DialOptions) *silence {
	s := &silence{after: o.KeepaliveTime, within: o.KeepaliveTimeout, conns: make(map[*firstFrameConn]struct{})}
	s.ctx, s.stop = context.WithCancel(context.Background())
	return s
}

// begin counts a call. The timer is set by the first one only: it is left running when no call waits,
// so that short calls do not set it again and again.
func (s *silence) begin() {
	s.calls.Add(1)
	if s.after > 0 && s.armed.CompareAndSwap(false, true) {
		s.lookAfter(s.after)
	}
}

// end counts a call no more.
func (s *silence) end() { s.calls.Add(-1) }

func (s *silence) lookAfter(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
	case s.timer == nil:
		s.timer = time.AfterFunc(d, s.look)
	default:
		s.timer.Reset(d)
	}
}

// look runs when the timer fires.
func (s *silence) look() {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return
	}
	s.looks.Add(1)
	s.mu.Unlock()
	defer s.looks.Done()
	quiet := s.quiet()
	switch {
	case s.calls.Load() == 0:
		s.armed.Store(false)
		if s.calls.Load() > 0 && s.armed.CompareAndSwap(false, true) { // one began before that
			s.lookAfter(s.after)
		}
		return
	case quiet < s.after:
		s.lookAfter(s.after - quiet)
		return
	}
	s.probe()
	s.lookAfter(s.after)
}

// quiet returns for how long the connection that has said nothing for the longest time has said nothing;
// 0 without a connection.
func (s *silence) quiet() (longest time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		longest = max(longest, c.quiet())
	}
	return longest
}

// probe makes the call and closes the connections on which nothing comes. Beside the one that has the
// call there may be earlier ones, which the peer has asked to leave (GOAWAY): nothing new is sent on
// them, so they have the same time to say something.
func (s *silence) probe() {
	began := time.Now()
	ctx, cancel := context.WithTimeout(s.ctx, s.within)
	defer cancel()
	s.answers.begin()
	defer s.answers.end()
	_ = s.conn.Invoke(ctx, healthpb.Health_Check_FullMethodName, new(healthpb.HealthCheckRequest), new(healthpb.HealthCheckResponse)) // any answer will do
	if len(s.silentSince(began)) == 0 {
		return
	}
	<-ctx.Done()
	if s.ctx.Err() != nil {
		return
	}
	for _, c := range s.silentSince(began) {
		c.silent(s.after, s.within)
	}
}

// silentSince returns the connections on which nothing has come since a time. One on which nothing was
// sent either is not among them if it is the newest: the probe may wait for a stream (RFC 9113, 5.1.2).
func (s *silence) silentSince(t time.Time) (silent []*firstFrameConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var newest *firstFrameConn
	for c := range s.conns {
		if newest == nil || c.opened.After(newest.opened) {
			newest = c
		}
	}
	since := time.Since(t)
	for c := range s.conns {
		if c.quiet() > since && (c != newest || c.wroteWithin(since)) {
			silent = append(silent, c)
		}
	}
	return silent
}

// opened adds a connection that is up.
func (s *silence) opened(c *firstFrameConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns[c] = struct{}{}
}

// ended removes a connection.
func (s *silence) ended(c *firstFrameConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
}

// close ends the watch and waits for its goroutines.
func (s *silence) close() {
	s.mu.Lock()
	s.closed = true
	if s.timer != nil {
		s.timer.Stop()
	}
	s.mu.Unlock()
	s.stop()
	s.looks.Wait()
}

// traffic is what a connection has moved, for the watch.
type traffic struct {
	opened  time.Time    // when the first frame came; set before the watch has the connection
	read    atomic.Int64 // nanoseconds from opened to the end of the last read
	wrote   atomic.Int64 // to the begin of the last write
	writing atomic.Int32 // writes under way
	why     atomic.Pointer[error]
}

// quiet returns how long ago the last bytes came.
func (t *traffic) quiet() time.Duration { return time.Since(t.opened) - time.Duration(t.read.Load()) }

// wroteWithin reports whether bytes were given to the kernel, or wait for it, since so long ago.
func (t *traffic) wroteWithin(d time.Duration) bool {
	return t.writing.Load() > 0 || time.Since(t.opened)-time.Duration(t.wrote.Load()) <= d
}

// silent closes a connection on which nothing came. The calls on it end with Unavailable and this reason.
func (c *firstFrameConn) silent(after, within time.Duration) {
	err := fmt.Errorf("%s has gone silent: nothing came for %v, nor within %v of a probe (keepalive.time, keepalive.timeout); the server is stopped, or something between lost its connection", c.address, after, within)
	c.traffic.why.CompareAndSwap(nil, &err)
	_ = c.Conn.Close() // gRPC's reader finds it, and closes c
}
