package checkpoint_test

import (
	"context"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/checkpoint"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/tensortest"
)

// place is an address at which one host after another serves.
type place struct {
	now  atomic.Pointer[host]
	fail atomic.Pointer[func(edge string) error] // fails receives; nil for none
	// arrive returns how a value came; nil for values of the same process. It is set before
	// the first receive.
	arrive func(edge string, bytes int64) rendezvous.Arrival
	// deaf is how many receives are never answered. It is set before the first one.
	deaf atomic.Int64

	mu    sync.Mutex
	asked map[string]int // receives, by the edge name of the key
}

// RecvAsync implements checkpoint.Receiver: it receives from the present host.
func (p *place) RecvAsync(ctx context.Context, step int64, key rendezvous.Key, args rendezvous.Args, done rendezvous.DoneFunc) {
	p.mu.Lock()
	p.asked[key.Edge()]++
	p.mu.Unlock()
	if p.deaf.Add(-1) >= 0 {
		deaf{}.RecvAsync(ctx, step, key, args, done)
		return
	}
	go func() {
		if f := p.fail.Load(); f != nil {
			if err := (*f)(key.Edge()); err != nil {
				done(rendezvous.Value{}, rendezvous.Args{}, err)
				return
			}
		}
		h := p.now.Load()
		if err := h.session.CheckSource(key); err != nil {
			done(rendezvous.Value{}, rendezvous.Args{}, err)
			return
		}
		v, err := h.manager.RecvLocal(ctx, step, key)
		if err == nil && h.damage != nil {
			h.damage(v)
		}
		if err == nil && p.arrive != nil {
			a := p.arrive(key.Edge(), v.Tensor.Size())
			v.SendArgs = a.NewArgs()
		}
		v, err = into(args, v, err)
		done(v, rendezvous.Args{}, err)
	}()
}

func (p *place) EndStep(int64) {}

// receives returns how many receives there were of keys that contain a text.
func (p *place) receives(text string) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for edge, k := range p.asked {
		if strings.Contains(edge, text) {
			n += k
		}
	}
	return n
}

// at returns a place with a host, and a puller of it.
func at(t testing.TB, h *host) (*place, *checkpoint.Puller) {
	t.Helper()
	p := &place{asked: make(map[string]int)}
	p.now.Store(h)
	again := grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: time.Second, Multiplier: 1, MaxDelay: time.Second}, MinConnectTimeout: time.Second}
	conn, err := grpc.NewClient("passthrough:///place", grpc.WithConnectParams(again), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return p.now.Load().lis.DialContext(ctx) }))
	must(t, err)
	t.Cleanup(func() { conn.Close() })
	return p, checkpoint.NewPuller(checkpoint.PullerOptions{
		Conn: conn, Task: cluster.ClientTask(), Incarnation: 1, Receiver: p, Address: "10.0.0.1:2222",
	})
}

// notes collects the interruptions of a pull.
type notes []checkpoint.Interruption

func (n *notes) add(i checkpoint.Interruption) { *n = append(*n, i) }

// mustBeOne checks that there was one interruption, told once, and once that the pull goes on.
func (n notes) mustBeOne(t testing.TB, words ...string) {
	t.Helper()
	if len(n) != 2 || n[0].Err == nil || n[0].Retry != checkpoint.DefaultRetry || n[1].Err != nil || n[1].Lasted <= 0 {
		t.Errorf("interruptions %+v", n)
		return
	}
	for _, w := range append(words, "10.0.0.1:2222") {
		if !strings.Contains(n[0].Err.Error(), w) {
			t.Errorf("the interruption %q does not say %q", n[0].Err, w)
		}
	}
}

// published returns a host that serves some tensors.
func published(t testing.TB, tensors ...*tensor.Tensor) *host {
	t.Helper()
	h := serve(t)
	_, err := h.catalog.PublishTensors(t.Context(), "m", tensors...)
	must(t, err)
	return h
}

// TestPullGoesOnWithARestartedServer: a server that was killed or stopped in order, and is back
// after a while with the same version, gives the rest. No tensor is yielded twice, and none that
// was yielded is requested again.
func TestPullGoesOnWithARestartedServer(t *testing.T) {
	for what, c := range map[string]struct {
		stop func(*host)
		says string
	}{
		"killed":           {func(h *host) { h.grpc.Stop() }, "connection to 10.0.0.1:2222 lost"},
		"stopped in order": {func(h *host) { h.catalog.Close(); h.grpc.GracefulStop() }, "the server is stopping"}, // by its stream or by a receive
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tensors := model(t)
				first, second := published(t, tensors...), published(t, tensors...)
				p, puller := at(t, first)
				var n notes
				var got []*tensor.Tensor
				for x, err := range puller.Pull(t.Context(), checkpoint.PullRequest{Inflight: 1, InflightBytes: 1, Interrupted: n.add}) {
					must(t, err)
					got = append(got, x)
					t.Cleanup(x.Release)
					if len(got) == 3 {
						c.stop(first)
						first.grpc.Stop() // nobody listens
						synctest.Wait()   // until the puller has noticed it
						time.AfterFunc(30*time.Second, func() { p.now.Store(second) })
					}
				}
				requireSame(t, tensors, got)
				n.mustBeOne(t, c.says)
				for _, x := range got[:3] {
					if k := p.receives("/" + x.Name()); k > 1 {
						t.Errorf("%q was requested %d times", x.Name(), k)
					}
				}
			})
		})
	}
}

// TestPullIsToldThatTheVersionChanged with both versions, at once.
func TestPullIsToldThatTheVersionChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := published(t, model(t)...)
		second := published(t, model(t)[:3]...)
		p, puller := at(t, first)
		begin := time.Now()
		var failure error
		for x, err := range puller.Pull(t.Context(), checkpoint.PullRequest{Inflight: 1, InflightBytes: 1}) {
			if failure = err; err != nil {
				break
			}
			x.Release()
			p.now.Store(second)
			first.grpc.Stop()
			synctest.Wait()
		}
		mustBe(t, failure, status.FailedPrecondition, first.catalog.List()[0].Version, second.catalog.List()[0].Version, "changed during the pull", "10.0.0.1:2222")
		if d := time.Since(begin); d > 10*time.Second {
			t.Errorf("it was told after %v", d)
		}
	})
}

// A server that is back publishes its files only after a while: the pull waits for them. A
// publication that is withdrawn from a server that is there is an error at once.
func TestPullWaitsUntilTheServerHasPublished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tensors := model(t)
		first, second := published(t, tensors...), serve(t)
		p, puller := at(t, first)
		var n notes
		count := 0
		for x, err := range puller.Pull(t.Context(), checkpoint.PullRequest{Inflight: 1, InflightBytes: 1, Interrupted: n.add}) {
			must(t, err)
			x.Release()
			if count++; count == 2 {
				p.now.Store(second)
				first.grpc.Stop()
				synctest.Wait()
				time.AfterFunc(40*time.Second, func() {
					if _, err := second.catalog.PublishTensors(t.Context(), "m", tensors...); err != nil {
						t.Error(err)
					}
				})
			}
		}
		if count != len(tensors) {
			t.Errorf("%d tensors came", count)
		}
		n.mustBeOne(t)

		begin := time.Now()
		var failure error
		for x, err := range puller.Pull(t.Context(), checkpoint.PullRequest{Inflight: 1, InflightBytes: 1}) {
			if failure = err; err != nil {
				break
			}
			x.Release()
			_ = second.withdraw("m") // an error the second time
		}
		mustBe(t, failure, status.NotFound, "withdrawn")
		if d := time.Since(begin); d > 10*time.Second {
			t.Errorf("it was told after %v", d)
		}
	})
}

// The first questions are repeated, too.
func TestPullWaitsForAServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		down := serve(t)
		down.grpc.Stop()
		p, puller := at(t, down)
		up := published(t, model(t)...)
		time.AfterFunc(50*time.Second, func() { p.now.Store(up) })
		var n notes
		out := filepath.Join(t.TempDir(), "m.safetensors")
		_, err := puller.Save(t.Context(), checkpoint.PullRequest{Interrupted: n.add}, checkpoint.SaveOptions{Out: out})
		must(t, err)
		n.mustBeOne(t, "no connection to 10.0.0.1:2222")
	})
}

// TestPullGivesUp when there was no progress for Retry, or at the first failure without it.
func TestPullGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, retry := range []time.Duration{-1, 20 * time.Second} {
			h := published(t, model(t)...)
			_, puller := at(t, h)
			begin, count := time.Now(), 0
			var n notes
			var failure error
			for x, err := range puller.Pull(t.Context(), checkpoint.PullRequest{Inflight: 1, InflightBytes: 1, Retry: retry, Interrupted: n.add}) {
				if failure = err; err != nil {
					break
				}
				x.Release()
				if count++; count == 3 {
					h.grpc.Stop()
					synctest.Wait()
				}
			}
			mustBe(t, failure, status.Unavailable, "10.0.0.1:2222")
			d := time.Since(begin)
			if retry < 0 && (d > time.Second || len(n) != 0) || retry > 0 && (d < retry || d > 2*retry || len(n) != 1) {
				t.Errorf("retry %v: it was told after %v, with %d notes: %v", retry, d, len(n), failure)
			}
			if retry > 0 && !strings.Contains(failure.Error(), "it was tried again for 20") {
				t.Errorf("got %v", failure)
			}
		}
	})
}

// A session that breaks again and again without progress is one outage.
func TestSessionsWithoutProgressAreOneOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := published(t, model(t)...)
		p, puller := at(t, h)
		broken := func(string) error {
			<-time.After(3 * time.Second)
			return status.New(status.Unavailable, "the device broke")
		}
		p.fail.Store(&broken)
		begin := time.Now()
		var n notes
		var failure error
		for _, err := range puller.Pull(t.Context(), checkpoint.PullRequest{Interrupted: n.add}) {
			failure = err
		}
		mustBe(t, failure, status.Unavailable, "the device broke", "receiving tensor", "10.0.0.1:2222")
		if d := time.Since(begin); d < checkpoint.DefaultRetry || d > 2*checkpoint.DefaultRetry {
			t.Errorf("it was told after %v", d)
		}
		n.mustBeOne(t, "the device broke")
	})
}

// Each part that comes ends the outage, and the next one may last as long again.
func TestProgressEndsAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tensors := model(t)
		p, puller := at(t, published(t, tensors...))
		var calls atomic.Int64
		everySecond := func(string) error {
			if calls.Add(1)%2 == 0 {
				return nil
			}
			<-time.After(checkpoint.DefaultRetry / 2)
			return status.New(status.Unavailable, "the device broke")
		}
		p.fail.Store(&everySecond)
		var n notes
		count := 0
		for x, err := range puller.Pull(t.Context(), checkpoint.PullRequest{Inflight: 1, InflightBytes: 1, Interrupted: n.add}) {
			must(t, err)
			x.Release()
			count++
		}
		if count != len(tensors) || len(n) != 2*len(tensors) {
			t.Errorf("%d tensors came, after %d notes", count, len(n))
		}
	})
}

// A tensor that cannot be divided, and takes longer than Retry, comes although its transfer is
// interrupted twice: its size lengthens the outage.
func TestLongTransferSurvivesTwoInterruptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := tensortest.Strings(t, strings.Repeat("x", 24<<20)) // 20 s more than a piece, at the slowest
		p, puller := at(t, published(t, x.Named("x")))
		var calls atomic.Int64
		twice := func(string) error {
			switch calls.Add(1) {
			case 1:
				<-time.After(10 * time.Second)
			case 2:
				<-time.After(checkpoint.DefaultRetry + 10*time.Second)
			default:
				return nil
			}
			return status.New(status.Unavailable, "the connection broke")
		}
		p.fail.Store(&twice)
		var n notes
		for x, err := range puller.Pull(t.Context(), checkpoint.PullRequest{Interrupted: n.add}) {
			must(t, err)
			x.Release()
		}
		if len(n) != 2 {
			t.Errorf("notes %+v", n)
		}
	})
}

// A server that opens sessions and holds each without a byte is given up: a session that lasts is no
// progress.
func TestSessionsThatOnlyLastAreGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, puller := at(t, published(t, patterned(t, "x", 100)))
		holds := func(string) error {
			<-time.After(checkpoint.DefaultRetry - 10*time.Second)
			return status.New(status.Unavailable, "the connection broke")
		}
		p.fail.Store(&holds)
		begin := time.Now()
		var failure error
		for x, err := range puller.Pull(t.Context(), checkpoint.PullRequest{}) {
			if failure = err; x != nil {
				x.Release()
			}
		}
		mustBe(t, failure, status.Unavailable, "it was tried again for")
		if d := time.Since(begin); d > 3*checkpoint.DefaultRetry {
			t.Errorf("it ended after %v", d)
		}
	})
}

// The time that a consumer takes is no outage, however long it is and how often the stream
// breaks meanwhile.
func TestSlowConsumerIsNoOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tensors := model(t)
		hosts := []*host{published(t, tensors...), published(t, tensors...), published(t, tensors...)}
		p, puller := at(t, hosts[0])
		count := 0
		for x, err := range puller.Pull(t.Context(), checkpoint.PullRequest{InflightBytes: 1}) {
			must(t, err)
			x.Release()
			if count++; count > 1 {
				continue
			}
			for i, h := range hosts[:2] {
				time.Sleep(3 * checkpoint.DefaultRetry)
				h.grpc.Stop()
				p.now.Store(hosts[i+1])
			}
			time.Sleep(3 * checkpoint.DefaultRetry)
		}
		if count != len(tensors) {
			t.Errorf("%d tensors came", count)
		}
	})
}

// TestDamageOnTheWayIsRequestedAgain once: what came damaged may come right the next time.
func TestDamageOnTheWayIsRequestedAgain(t *testing.T) {
	x := patterned(t, "x", 1000)
	h := published(t, x)
	var once sync.Once
	h.damage = func(v rendezvous.Value) {
		undo := false
		once.Do(func() { v.Tensor.Bytes()[5] ^= 1; undo = true })
		if !undo && v.Tensor.Bytes()[5] != byte(5) { // the memory is shared with the host
			v.Tensor.Bytes()[5] ^= 1
		}
	}
	p, puller := at(t, h)
	for got, err := range puller.Pull(t.Context(), checkpoint.PullRequest{}) {
		must(t, err)
		got.Release()
	}
	if n := p.receives("/x"); n != 2 {
		t.Errorf("x was requested %d times", n)
	}
}

// A cancelled pull ends during an outage, and says what it waited for.
func TestPullEndsWithItsContextInAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := serve(t)
		h.grpc.Stop()
		_, puller := at(t, h)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		for _, err := range puller.Pull(ctx, checkpoint.PullRequest{}) {
			mustBe(t, err, status.DeadlineExceeded, "before 10.0.0.1:2222 answered", "it was interrupted", "no connection to 10.0.0.1:2222")
		}
	})
}

// A part that failed gives its share of the window back only when the session has ended: with it the
// next tensor would be requested, and its place could wait for ever for one that never comes.
func TestFailedPartMakesNoSpace(t *testing.T) {
	p, puller := at(t, published(t, model(t)...))
	broken := func(string) error { return status.New(status.Unavailable, "the device broke") }
	p.fail.Store(&broken)
	const pulls = 300
	for range pulls {
		for _, err := range puller.Pull(t.Context(), checkpoint.PullRequest{InflightBytes: 1, Retry: -1}) {
			mustBe(t, err, status.Unavailable, "the device broke")
		}
	}
	if n := p.receives("/"); n != pulls {
		t.Errorf("%d requests in %d pulls with space for one tensor", n, pulls)
	}
}
