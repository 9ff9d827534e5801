package checkpoint

import (
	"context"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	"github.com/tryst-rdma/tryst/cluster"
	trystpb "github.com/tryst-rdma/tryst/internal/proto/tryst"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

func TestVigilEndsAPullerThatSaysNothing(t *testing.T) {
	begin := time.Unix(1, 0)
	at := func(d time.Duration) time.Time { return begin.Add(d) }
	v := vigil{notices: true}
	if !v.wake().IsZero() || v.tick(at(time.Hour), 0) != vigilNothing {
		t.Error("a puller of the current version is asked")
	}
	if v.replaced(begin, 1) != vigilAsk || v.replaced(begin, 1) != vigilNothing {
		t.Error("it is not asked once when its version was replaced")
	}
	v.answered(at(time.Second))
	if v.wake() != at(time.Second+aliveEvery) || v.tick(v.wake(), 2) != vigilAsk {
		t.Error("it is not asked again")
	}
	asked := v.since
	for d := lookEvery; d < 2*aliveWithin; d += lookEvery {
		heard := uint64(2)
		if d >= aliveWithin-lookEvery {
			heard = 3
		}
		if got, last := v.tick(asked.Add(d), heard), d == 2*aliveWithin-lookEvery; (got == vigilEnd) != last {
			t.Errorf("after %v, %d heard: %v", d, heard, got)
		}
	}
	if v.state != vigilDeaf || !v.wake().IsZero() {
		t.Error("a puller that says nothing is waited for")
	}
}

func TestVigilAfterTheVersionIsGone(t *testing.T) {
	begin := time.Unix(1, 0)
	for _, test := range []struct {
		notices bool
		heard   func(seconds int) uint64
		want    time.Duration // until the connection is cut; 0 for never
	}{
		{true, func(int) uint64 { return 7 }, aliveWithin},
		{true, func(s int) uint64 { return 7 + min(uint64(s), 1) }, aliveWithin + lookEvery}, // what was under way
		{true, func(s int) uint64 { return 7 + uint64(s) }, leaveWithin},
		{false, func(int) uint64 { return 7 }, 0},
	} {
		v := vigil{notices: test.notices}
		v.gone(begin, test.heard(0))
		if v.replaced(begin, 7) != vigilNothing {
			t.Error("a puller that is leaving is asked whether it is there")
		}
		v.answered(begin)
		var got time.Duration
		for s := 1; s < 60 && got == 0; s++ {
			if d := time.Duration(s) * time.Second; v.tick(begin.Add(d), test.heard(s)) == vigilEnd {
				got = d
			}
		}
		if got != test.want {
			t.Errorf("its connection is cut after %v, want %v", got, test.want)
		}
	}
}

// openStream is the server's side of a stream of Open whose puller never answers.
type openStream struct {
	grpc.ServerStreamingServer[trystpb.OpenResponse]
	ctx  context.Context
	sent chan *trystpb.OpenResponse
}

func (s openStream) Context() context.Context { return s.ctx }

func (s openStream) Send(m *trystpb.OpenResponse) error {
	s.sent <- m
	return nil
}

// connection is one on which nothing comes. Cut ends its streams.
type connection struct{ cancel func() }

func (c *connection) Heard() uint64 { return 0 }
func (c *connection) Collect()      {}
func (c *connection) Cut()          { c.cancel() }

// stopped begins a pull of a version in memory, on virtual time, whose puller is stopped.
func stopped(t *testing.T, notices bool, test func(t *testing.T, c *Catalog, steps <-chan int64, ended <-chan error)) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		steps := make(chan int64, 1)
		c, err := NewCatalog(CatalogOptions{
			Connection: func(context.Context) Connection { return &connection{cancel} },
			EndStep:    func(step int64) { steps <- step },
		})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		update(t, c)
		ended := make(chan error, 1)
		s := openStream{ctx: ctx, sent: make(chan *trystpb.OpenResponse, 10)}
		go func() {
			ended <- c.open(&trystpb.OpenRequest{Publication: "w", Puller: "/job:client/replica:0/task:1", Notices: notices}, s, new(bool))
		}()
		if m := <-s.sent; !m.GetLast() {
			t.Fatal("more than one message has the keys of one tensor")
		}
		test(t, c, steps, ended)
	})
}

func update(t *testing.T, c *Catalog) *Lent {
	x, err := tensor.Make[float32](tensor.Heap{}, 4)
	if err != nil {
		t.Fatal(err)
	}
	defer x.Release()
	lent, err := c.Update(t.Context(), "w", []*tensor.Tensor{x.Named("x")}, UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return lent
}

// A puller that is stopped holds nothing of a withdrawn version at the server; its connection is closed.
func TestAStoppedPullerOfAWithdrawnVersion(t *testing.T) {
	stopped(t, true, func(t *testing.T, c *Catalog, steps <-chan int64, ended <-chan error) {
		begin := time.Now()
		lent, err := c.Withdraw(t.Context(), "w")
		if err != nil {
			t.Fatal(err)
		}
		<-lent.Done()
		<-steps
		if took := time.Since(begin); took != 0 {
			t.Errorf("its step and the memory of the catalog were released after %v", took)
		}
		if err := <-ended; time.Since(begin) != aliveWithin {
			t.Errorf("its connection was closed after %v, with %v", time.Since(begin), err)
		}
	})
}

// An update does not wait for a puller that is stopped until the bound of its pull.
func TestAStoppedPullerOfAReplacedVersion(t *testing.T) {
	stopped(t, true, func(t *testing.T, c *Catalog, steps <-chan int64, ended <-chan error) {
		begin := time.Now()
		update(t, c)
		update(t, c)
		if took := time.Since(begin); took != aliveWithin {
			t.Errorf("the third version waited for %v", took)
		}
		<-steps
		if err := <-ended; err == nil {
			t.Error("the pull has ended without an error")
		}
	})
}

// A puller that takes no notices gets the error of its stream.
func TestAPullerWithoutNoticesOfAReplacedVersion(t *testing.T) {
	stopped(t, false, func(t *testing.T, c *Catalog, steps <-chan int64, ended <-chan error) {
		begin := time.Now()
		update(t, c)
		if err := <-ended; status.CodeOf(err) != status.FailedPrecondition || time.Since(begin) != DefaultReplacedPulls {
			t.Errorf("after %v: %v", time.Since(begin), err)
		}
		<-steps
	})
}

func TestWatchersAreBounded(t *testing.T) {
	c, err := NewCatalog(CatalogOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.watchers.Store(maxWatchers)
	if err := c.announce(&trystpb.WatchRequest{Publication: "w"}, nil); status.CodeOf(err) != status.ResourceExhausted || !mayPass(err) {
		t.Errorf("one more: %v", err)
	}
	if len(c.lines) != 0 {
		t.Error("what was refused is remembered")
	}
}

// watchStream is the server's side of a stream of Watch.
type watchStream struct {
	grpc.ServerStreamingServer[trystpb.WatchResponse]
	ctx  context.Context
	sent chan uint64 // numbers
}

func (s watchStream) Context() context.Context { return s.ctx }

func (s watchStream) Send(m *trystpb.WatchResponse) error {
	select {
	case s.sent <- m.GetPublication().GetNumber():
		return nil
	default:
		return io.ErrShortBuffer
	}
}

// A publisher with a thousand versions a second announces the newest of them from time to time.
func TestAnnouncementsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := NewCatalog(CatalogOptions{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		s := watchStream{ctx: ctx, sent: make(chan uint64, 60)}
		ended := make(chan error, 1)
		go func() { ended <- c.announce(&trystpb.WatchRequest{Publication: "w"}, s) }()
		for range 1000 {
			update(t, c)
			time.Sleep(time.Millisecond)
		}
		time.Sleep(announceEvery)
		synctest.Wait()
		last, n := uint64(0), len(s.sent)
		for range n {
			next := <-s.sent
			if next < last {
				t.Errorf("number %d after %d", next, last)
			}
			last = next
		}
		if last != 1000 || n > 55 {
			t.Errorf("%d announcements, the last of number %d", n, last)
		}
		cancel()
		if err := <-ended; status.CodeOf(err) != status.Cancelled {
			t.Error(err)
		}
		c.Close()
		if len(c.lines) != 1 {
			t.Errorf("%d lines of one publication", len(c.lines))
		}
	})
}

// deafStream is a stream of Watch whose client does not read.
type deafStream struct {
	grpc.ServerStreamingServer[trystpb.WatchResponse]
	ctx context.Context
}

func (s deafStream) Context() context.Context { return s.ctx }

func (s deafStream) Send(*trystpb.WatchResponse) error {
	<-s.ctx.Done()
	return s.ctx.Err()
}

// Watchers that take nothing hold back no update, and no memory.
func TestAWatcherThatDoesNotReadHoldsBackNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := NewCatalog(CatalogOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 3)
		for range cap(ended) {
			go func() { ended <- c.announce(&trystpb.WatchRequest{Publication: "w"}, deafStream{ctx: ctx}) }()
		}
		begin := time.Now()
		for range 100 {
			update(t, c)
		}
		synctest.Wait()
		if current, old := c.Held(); current != 1 || old != 0 || time.Since(begin) != 0 {
			t.Errorf("%d and %d versions are held, after %v", current, old, time.Since(begin))
		}
		cancel()
		for range cap(ended) {
			if err := <-ended; err == nil {
				t.Error("the pull has ended without an error")
			}
		}
	})
}

// An update that waits for memory ends when the publication is withdrawn, and the next one begins anew.
func TestUpdateDuringAWithdrawal(t *testing.T) {
	stopped(t, true, func(t *testing.T, c *Catalog, steps <-chan int64, ended <-chan error) {
		update(t, c)
		result := make(chan error)
		go func() {
			x, err := tensor.Make[float32](tensor.Heap{}, 4)
			if err == nil {
				defer x.Release()
				_, err = c.Update(t.Context(), "w", []*tensor.Tensor{x.Named("x")}, UpdateOptions{})
			}
			result <- err
		}()
		synctest.Wait() // two versions are in memory
		lent, err := c.Withdraw(t.Context(), "w")
		if err != nil {
			t.Fatal(err)
		}
		if err := <-result; status.CodeOf(err) != status.FailedPrecondition {
			t.Error(err)
		}
		<-lent.Done()
		if p := update(t, c).Publication; p.Number != 1 || p.Epoch == lent.Publication.Epoch {
			t.Errorf("after the withdrawal: %+v", p)
		}
		<-steps
		if err := <-ended; err == nil {
			t.Error("the pull has ended without an error")
		}
	})
}

// A pull of an old version that ends after the catalog was closed, while a response still has the memory, gives nothing back
// once more.
func TestPullThatEndsAfterClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := NewCatalog(CatalogOptions{})
		if err != nil {
			t.Fatal(err)
		}
		update(t, c)
		p, end, err := c.begin("w", "", newOpened(nil, false))
		if err != nil {
			t.Fatal(err)
		}
		response := p.entries[0].held.Retain()
		defer response.Release()
		update(t, c)
		c.Close()
		time.Sleep(time.Hour)
		end()
	})
}

// What is kept for the keys of a version that has ended is released, in all steps; not while another version has the
// same keys.
func TestKeysOfAVersionThatEndsAreReleased(t *testing.T) {
	var ended []func(rendezvous.Key) bool
	c, err := NewCatalog(CatalogOptions{EndKeys: func(withdrawn func(rendezvous.Key) bool) { ended = append(ended, withdrawn) }})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	key := func(l *Lent) rendezvous.Key {
		src, dst := cluster.DeviceOf(cluster.ClientTask()), cluster.DeviceOf(cluster.ClientTask())
		k, err := rendezvous.NewKey(src, 1, dst, EdgeName("w", l.Publication.Version, "x"), rendezvous.FrameIter{})
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	first := update(t, c)
	update(t, c) // of the same content
	if len(ended) != 0 {
		t.Fatal("keys ended that the current version has")
	}
	if _, err := c.Withdraw(t.Context(), "w"); err != nil {
		t.Fatal(err)
	}
	if len(ended) != 1 || !ended[0](key(first)) {
		t.Fatalf("%d times keys ended, and not those of the version", len(ended))
	}
	other := &Lent{Publication: Publication{Version: "00112233445566ff"}}
	if ended[0](key(other)) {
		t.Error("the keys of another version ended")
	}
}

// A version is dropped that has the content of the one before, whose pulls go on.
func TestADroppedVersionLeavesItsKeysToTheOneBefore(t *testing.T) {
	c, err := NewCatalog(CatalogOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	first := update(t, c)
	_, end, err := c.begin("w", "", newOpened(nil, false))
	if err != nil {
		t.Fatal(err)
	}
	update(t, c) // of the same content
	x, err := tensor.Make[float32](tensor.Heap{}, 5)
	if err != nil {
		t.Fatal(err)
	}
	defer x.Release()
	if _, err := c.Update(t.Context(), "w", []*tensor.Tensor{x.Named("x")}, UpdateOptions{Drop: true}); err != nil {
		t.Fatal(err)
	}
	edge := EdgeName("w", first.Publication.Version, "x")
	has := func() bool {
		c.mu.RLock()
		defer c.mu.RUnlock()
		return c.edges[edge] != nil
	}
	if !has() {
		t.Error("the keys of the first version are gone, although it is pulled")
	}
	end()
	if _, err := c.Withdraw(t.Context(), "w"); err != nil || has() {
		t.Errorf("after the withdrawal the keys are there: %v; %v", has(), err)
	}
}

// The pull of a version reads the memory of a later one with the same content, since they have the same keys. That one is not
// dropped: each version that took its place would leave another one in memory.
func TestAVersionThatIsReadIsNotDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := NewCatalog(CatalogOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		first := update(t, c)
		_, end, err := c.begin("w", "", newOpened(nil, false))
		if err != nil {
			t.Fatal(err)
		}
		update(t, c) // of the same content
		_, read, _, _ := c.find(EdgeName("w", first.Publication.Version, "x"), &rendezvous.Key{})
		if read == nil {
			t.Fatal("the first version cannot be read")
		}
		entered := make(chan error, 1)
		go func() {
			x, err := tensor.Make[float32](tensor.Heap{}, 5)
			if err == nil {
				defer x.Release()
				_, err = c.Update(t.Context(), "w", []*tensor.Tensor{x.Named("x")}, UpdateOptions{Drop: true})
			}
			entered <- err
		}()
		synctest.Wait()
		if current, old := c.Held(); current+old != maxHeld {
			t.Errorf("%d versions are in memory", current+old)
		}
		end()
		read.Release()
		if err := <-entered; err != nil {
			t.Error(err)
		}
	})
}
