package progress

import (
	"context"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/tryst-rdma/tryst/verbs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeCQ is a completion queue in memory, with the rules of ibv_req_notify_cq(3):
// an armed queue makes one event, at the next completion.
type fakeCQ struct {
	events chan struct{} // capacity 1: Wait takes all events that have come

	mu      sync.Mutex
	queue   []verbs.WC
	armed   bool
	pollErr error
	armErr  error
	waitErr error
	number  bool // completions carry their number in VendorErr
	count   uint32
	broken  chan struct{} // closed: Wait fails with waitErr
}

func newFakeCQ() *fakeCQ {
	return &fakeCQ{events: make(chan struct{}, 1), broken: make(chan struct{})}
}

// complete adds a completion.
func (c *fakeCQ) complete(id verbs.WRID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	wc := verbs.WC{ID: id}
	if c.number {
		wc.VendorErr = c.count
		c.count++
	}
	c.queue = append(c.queue, wc)
	if c.armed {
		c.armed = false
		select {
		case c.events <- struct{}{}:
		default:
		}
	}
}

// callingCQ calls the function for its events on the goroutine that completes, as a
// software device does for a packet. Every fourth event it leaves to Wait.
type callingCQ struct {
	*fakeCQ
	f     func()
	fired int
}

func (c *callingCQ) OnEvent(f func()) { c.f = f }

func (c *callingCQ) complete(id verbs.WRID) {
	c.mu.Lock()
	call := false
	if c.armed {
		c.fired++
		if call = c.fired%4 != 0 && c.f != nil; call {
			c.armed = false
		}
	}
	c.mu.Unlock()
	c.fakeCQ.complete(id)
	if call {
		c.f()
	}
}

func (c *fakeCQ) Poll(wcs []verbs.WC) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := copy(wcs, c.queue)
	c.queue = c.queue[:copy(c.queue, c.queue[n:])]
	return n, c.pollErr
}

func (c *fakeCQ) Arm(bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.armed = true
	return c.armErr
}

func (c *fakeCQ) Wait(ctx context.Context) error {
	select {
	case <-c.events:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-c.broken:
		return c.waitErr
	}
}

func (c *fakeCQ) Size() int    { return 1 << 20 }
func (c *fakeCQ) Close() error { return nil }

func stop(t testing.TB, q *Queue) {
	t.Helper()
	if err := q.Stop(); err != nil {
		t.Error(err)
	}
}

var allModes = []Mode{ModeAdaptive, ModeBusy, ModeEvent}

// testCQ is a completion queue with a method that completes.
type testCQ interface {
	verbs.CQ
	complete(id verbs.WRID)
}

// fakes are all kinds of testCQ.
var fakes = map[string]func(*fakeCQ) testCQ{
	"waits": func(c *fakeCQ) testCQ { return c },
	"calls": func(c *fakeCQ) testCQ { return &callingCQ{fakeCQ: c} },
}

// drivenCQ is a callingCQ whose polls do the work of the device: work, if it is set, at the first poll
// of a queue that is disarmed.
type drivenCQ struct {
	*callingCQ
	work     func()
	disarmed int // calls of Disarm
	polling  bool
	armings  int // that ended a time of polling
}

func (c *drivenCQ) Disarm() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.disarmed++
	c.armed, c.polling = false, true
}

func (c *drivenCQ) Arm(solicitedOnly bool) error {
	c.mu.Lock()
	if c.polling {
		c.polling = false
		c.armings++
	}
	c.mu.Unlock()
	return c.fakeCQ.Arm(solicitedOnly)
}

func (c *drivenCQ) Poll(wcs []verbs.WC) (int, error) {
	c.mu.Lock()
	work := c.work
	if c.polling {
		c.work = nil
	}
	polling := c.polling
	c.mu.Unlock()
	if polling && work != nil {
		work()
	}
	return c.fakeCQ.Poll(wcs)
}
