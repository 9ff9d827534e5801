package checkpoint_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tryst-rdma/tryst/internal/checkpoint"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// enough is how long a test waits for what must happen soon.
const enough = 2 * time.Minute

func TestPullFromAFile(t *testing.T) {
	tensors := model(t)
	h := serve(t)
	pub := h.publish("", writeSafetensors(t, filepath.Join(t.TempDir(), "tiny.safetensors"), map[string]string{"format": "pt"}, tensors...))
	if pub.Name != "tiny" || pub.Tensors != len(tensors) {
		t.Errorf("published %+v", pub)
	}
	var sum checkpoint.Summary
	var reports []checkpoint.Progress
	got := h.dial().pull(t, checkpoint.PullRequest{Summary: &sum, Progress: func(p checkpoint.Progress) { reports = append(reports, p) }})
	requireSame(t, tensors, got)
	if sum.Tensors != len(tensors) || sum.Bytes != pub.Bytes || !sum.Verified || sum.Transfer <= 0 || sum.Total < sum.Transfer ||
		sum.BytesPerSecond() <= 0 || sum.Publication.Version != pub.Version {
		t.Errorf("summary %+v", sum)
	}
	m, err := h.catalog.Describe("tiny", "")
	must(t, err)
	if sum.Digest != m.Digest() {
		t.Errorf("digest %s, the manifest's %s", sum.Digest, m.Digest())
	}
	if last := reports[len(reports)-1]; len(reports) != len(tensors) || last.Tensors != last.Total || last.Bytes != pub.Bytes || last.TotalBytes != pub.Bytes {
		t.Errorf("%d reports, the last is %+v", len(reports), last)
	}
}

func TestPullFromMemory(t *testing.T) {
	words, err := tensor.FromStrings(tensor.Vector(3), []string{"a", "", "c\x00"})
	must(t, err)
	tensors := append(model(t), words.Named("words"))
	h := serve(t)
	_, err = h.catalog.PublishTensors(t.Context(), "mem", tensors...)
	must(t, err)
	requireSame(t, tensors, h.dial().pull(t, checkpoint.PullRequest{Publication: "mem"}))
}

func TestPullChosenTensors(t *testing.T) {
	tensors := model(t)
	h := serve(t)
	_, err := h.catalog.PublishTensors(t.Context(), "m", tensors...)
	must(t, err)
	c := h.dial()
	for _, tt := range []struct {
		patterns []string
		want     []int
	}{
		{[]string{"*"}, []int{0, 1, 2, 3, 4, 5, 6}},
		{[]string{"h.*"}, []int{1, 2, 3}},
		{[]string{"h.?/attn?weight"}, []int{1, 3}},
		{[]string{"scalar", "h.[0]*s", "wte.weight"}, []int{0, 2, 5}},
		{[]string{"*weight", "wte*"}, []int{0, 1, 3}},
		{[]string{"mask ?"}, []int{6}},
	} {
		var want []*tensor.Tensor
		for _, i := range tt.want {
			want = append(want, tensors[i])
		}
		requireSame(t, want, c.pull(t, checkpoint.PullRequest{Tensors: tt.patterns}))
	}
}

// A name that is a pattern means itself.
func TestPullATensorWhoseNameIsAPattern(t *testing.T) {
	h := serve(t)
	odd := named(t, "w[0]*", tensor.Float32, 2)
	_, err := h.catalog.PublishTensors(t.Context(), "m", odd, named(t, "w0", tensor.Float32, 3))
	must(t, err)
	requireSame(t, []*tensor.Tensor{odd}, h.dial().pull(t, checkpoint.PullRequest{Tensors: []string{"w[0]*"}}))
}

func TestManyPullersAtOnce(t *testing.T) {
	tensors := model(t)
	h := serve(t, func(o *checkpoint.CatalogOptions) { o.CacheBytes = 20_000 }) // less than the file
	h.publish("m", writeSafetensors(t, filepath.Join(t.TempDir(), "m.safetensors"), nil, tensors...))
	var wg sync.WaitGroup
	for range 16 {
		c := h.dial()
		wg.Go(func() {
			for range 3 {
				var names []string
				for x, err := range c.Pull(t.Context(), checkpoint.PullRequest{Inflight: 3}) {
					if err != nil {
						t.Error(err)
						return
					}
					names = append(names, x.Name())
					x.Release()
				}
				if !slices.Equal(names, namesOf(tensors)) {
					t.Errorf("pulled %q", names)
				}
			}
		})
	}
	wg.Wait()
	h.idle(t, 48)
	if n := h.alloc.InUse(); n > 20_000 {
		t.Errorf("%d bytes are kept; the bound is 20000", n)
	}
}

func namesOf(tensors []*tensor.Tensor) (names []string) {
	for _, x := range tensors {
		names = append(names, x.Name())
	}
	return names
}

// idle waits until no pull is under way, and then n steps must have ended.
func (h *host) idle(t testing.TB, n int64) {
	t.Helper()
	for end := time.Now().Add(enough); h.catalog.Pulls() > 0 || h.ended.Load() < n; {
		if time.Now().After(end) {
			t.Fatalf("%d pulls are under way, %d have ended, want %d", h.catalog.Pulls(), h.ended.Load(), n)
		}
		<-time.After(time.Millisecond)
	}
	if got := h.ended.Load(); got != n {
		t.Errorf("%d steps have ended, want %d", got, n)
	}
	if n := h.manager.Steps(); n != 0 {
		t.Errorf("%d steps are left", n)
	}
}

// A puller that dies leaves nothing, and what it took is there for the others.
func TestDeadPullerLeavesNothing(t *testing.T) {
	tensors := model(t)
	h := serve(t, func(o *checkpoint.CatalogOptions) { o.CacheBytes = -1 })
	h.publish("m", writeSafetensors(t, filepath.Join(t.TempDir(), "m.safetensors"), nil, tensors...))
	c := h.dial()
	var failure error
	for x, err := range c.Pull(t.Context(), checkpoint.PullRequest{Inflight: 1, InflightBytes: 1}) {
		if failure = err; err != nil {
			break
		}
		x.Release()
		c.conn.Close() // as when its process dies
		h.idle(t, 1)   // the server has noticed it
	}
	if failure == nil {
		t.Error("the pull ended well without its stream")
	}
	h.idle(t, 1)
	h.alloc.WaitAllReleased(enough)
	requireSame(t, tensors, h.dial().pull(t, checkpoint.PullRequest{}))
}

func TestBreakingOutOfThePullReleasesTheRest(t *testing.T) {
	h := serve(t, func(o *checkpoint.CatalogOptions) { o.CacheBytes = -1 })
	h.publish("m", writeSafetensors(t, filepath.Join(t.TempDir(), "m.safetensors"), nil, model(t)...))
	c := h.dial()
	for x, err := range c.Pull(t.Context(), checkpoint.PullRequest{}) {
		must(t, err)
		x.Release()
		break
	}
	h.idle(t, 1)
	if n := c.manager.Steps(); n != 0 {
		t.Errorf("the puller has %d steps left", n)
	}
	h.alloc.WaitAllReleased(enough)

	func() {
		defer func() { _ = recover() }()
		for x, err := range c.Pull(t.Context(), checkpoint.PullRequest{}) {
			must(t, err)
			x.Release()
			panic("a bug in the loop") //nolint:forbidigo // what is tested
		}
	}()
	h.idle(t, 2)
	h.alloc.WaitAllReleased(enough)
}

// TestPullWithoutABoundOnMemory: who wants none says so by a large one.
func TestPullWithoutABoundOnMemory(t *testing.T) {
	h := serve(t)
	_, err := h.catalog.PublishTensors(t.Context(), "m", model(t)...)
	must(t, err)
	requireSame(t, model(t), h.dial().pull(t, checkpoint.PullRequest{Publication: "m", InflightBytes: math.MaxInt64}))
}

func TestPullWithoutAnyTensor(t *testing.T) {
	h := serve(t)
	h.publish("none", writeSafetensors(t, filepath.Join(t.TempDir(), "m.safetensors"), nil))
	if got := h.dial().pull(t, checkpoint.PullRequest{}); len(got) != 0 {
		t.Errorf("pulled %v", got)
	}
}

func TestDamageOnTheWayIsDataLoss(t *testing.T) {
	h := serve(t)
	x := named(t, "x", tensor.Uint8, 1000)
	path := writeSafetensors(t, filepath.Join(t.TempDir(), "m.safetensors"), nil, named(t, "a", tensor.Float32, 3), x)
	h.publish("m", path)
	h.damage = damager(77)
	m, err := h.catalog.Describe("m", "")
	must(t, err)
	c := h.dial()
	_, err = c.tryPull(t, checkpoint.PullRequest{})
	mustBe(t, err, status.DataLoss, `"x"`, "damaged", "xxh64:"+hexOf(m.Entries[1].Digest))
	got := c.pull(t, checkpoint.PullRequest{SkipDigests: true, Tensors: []string{"x"}})
	if len(got) != 1 {
		t.Errorf("without digests %d tensors came", len(got))
	}
	h.damage = nil
}

// What is asked for and not handed on stays within the window.
func TestPullsMemoryIsBounded(t *testing.T) {
	const size, window = 1 << 18, 3 << 18
	h := serve(t, func(o *checkpoint.CatalogOptions) { o.CacheBytes = -1 })
	var tensors []*tensor.Tensor
	for i := range 40 {
		tensors = append(tensors, named(t, fmt.Sprint("x", i), tensor.Uint8, size))
	}
	h.publish("m", writeSafetensors(t, filepath.Join(t.TempDir(), "m.safetensors"), nil, tensors...))
	for x, err := range h.dial().Pull(t.Context(), checkpoint.PullRequest{InflightBytes: window, SkipDigests: true}) {
		must(t, err)
		<-time.After(time.Millisecond)             // a slow consumer
		if n := h.alloc.InUse(); n > window+size { // and the consumer's own
			t.Fatalf("%d bytes in use; the window is %d", n, window)
		}
		x.Release()
	}
}

func TestPullEndsWithItsContext(t *testing.T) {
	h := serve(t)
	_, err := h.catalog.PublishTensors(t.Context(), "m", model(t)...)
	must(t, err)
	c := h.dial()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var failure error
	for x, err := range c.Pull(ctx, checkpoint.PullRequest{Inflight: 1, InflightBytes: 1}) {
		if failure = err; err != nil {
			break
		}
		x.Release()
		cancel()
	}
	mustBe(t, failure, status.Cancelled, `"m" from the server was cancelled`, "of 7 tensors had come")
	if !errors.Is(failure, context.Canceled) {
		t.Error("it is not context.Canceled")
	}

	h.idle(t, 1)
}

func TestPullEndsWithItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := serve(t)
		_, err := h.catalog.PublishTensors(t.Context(), "m", model(t)...)
		must(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var failure error
		for x, err := range h.dial().Pull(ctx, checkpoint.PullRequest{Inflight: 1, InflightBytes: 1}) {
			if failure = err; err != nil {
				break
			}
			x.Release()
			<-ctx.Done()
			synctest.Wait() // until the contexts below ctx have ended, too
		}
		mustBe(t, failure, status.DeadlineExceeded, `"m" from the server took longer than its deadline`, "of 7 tensors had come")
	})
}

// The server stops while a puller is at it: the pull ends with the reason, and
// not with what follows from it.
func TestServerStopsDuringAPull(t *testing.T) {
	for what, stop := range map[string]func(*host){
		"in order": func(h *host) { h.catalog.Close() },
		"at once":  func(h *host) { h.grpc.Stop() },
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := serve(t)
				_, err := h.catalog.PublishTensors(t.Context(), "m", model(t)...)
				must(t, err)
				var failure error
				for x, err := range h.dial().Pull(t.Context(), checkpoint.PullRequest{Inflight: 1, InflightBytes: 1, Retry: -1}) {
					if failure = err; err != nil {
						break
					}
					x.Release()
					stop(h)
					synctest.Wait() // until the puller has noticed it
				}
				mustBe(t, failure, status.Unavailable)
			})
		})
	}
}

// A receive that hangs ends when the stream does.
func TestServerIsGoneWhileAReceiveWaits(t *testing.T) {
	h := serve(t)
	_, err := h.catalog.PublishTensors(t.Context(), "m", model(t)...)
	must(t, err)
	c := h.dial()
	hang := &hanging{Receiver: checkpoint.NewReceiver(c.manager), asked: make(chan struct{}, 100)}
	p := checkpoint.NewPuller(checkpoint.PullerOptions{Conn: c.conn, Task: h.session.Task, Receiver: hang})
	go func() {
		<-hang.asked
		h.grpc.Stop()
	}()
	for _, err := range p.Pull(t.Context(), checkpoint.PullRequest{Retry: -1}) {
		mustBe(t, err, status.Unavailable, `the pull of "m" was interrupted`, "connection to the server lost")
	}
	if hang.ended.Load() != 1 {
		t.Errorf("the step was ended %d times", hang.ended.Load())
	}
}

// hanging is a Receiver whose peer never answers.
type hanging struct {
	checkpoint.Receiver
	asked chan struct{}
	ended atomic.Int64
}

func (h *hanging) RecvAsync(ctx context.Context, _ int64, _ rendezvous.Key, _ rendezvous.Args, done rendezvous.DoneFunc) {
	h.asked <- struct{}{}
	context.AfterFunc(ctx, func() { done(rendezvous.Value{}, rendezvous.Args{}, status.From(ctx.Err())) })
}

func (h *hanging) EndStep(step int64) {
	h.ended.Add(1)
	h.Receiver.EndStep(step)
}

func TestServerWithoutPublications(t *testing.T) {
	h := serve(t)
	c := h.dial()
	_, err := c.tryPull(t, checkpoint.PullRequest{})
	mustBe(t, err, status.NotFound, "no publication")
	h.grpc.Stop()
	_, err = c.List(t.Context())
	mustBe(t, err, status.Unavailable)
}

// A receive that fails only because the step ended waits for the reason.
func TestPullTellsTheCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := serve(t)
		_, err := h.catalog.PublishTensors(t.Context(), "m", model(t)...)
		must(t, err)
		c := h.dial()
		r := &aborting{Receiver: checkpoint.NewReceiver(c.manager), first: sync.OnceFunc(func() { go h.catalog.Close() })}
		p := checkpoint.NewPuller(checkpoint.PullerOptions{Conn: c.conn, Task: h.session.Task, Receiver: r})
		for _, err := range p.Pull(t.Context(), checkpoint.PullRequest{Retry: -1}) {
			mustBe(t, err, status.Unavailable, `the server says: "the server is stopping"`)
		}
	})
}

// Without another reason it is told itself.
func TestPullTellsWhatItKnows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := serve(t)
		_, err := h.catalog.PublishTensors(t.Context(), "m", model(t)...)
		must(t, err)
		c := h.dial()
		r := &aborting{Receiver: checkpoint.NewReceiver(c.manager), first: func() {}}
		p := checkpoint.NewPuller(checkpoint.PullerOptions{Conn: c.conn, Task: h.session.Task, Receiver: r})
		for _, err := range p.Pull(t.Context(), checkpoint.PullRequest{Retry: -1}) {
			mustBe(t, err, status.Aborted, "Cleanup 7", "receiving tensor")
		}
	})
}

// aborting is a Receiver whose step is over.
type aborting struct {
	checkpoint.Receiver
	first func()
}

func (a *aborting) RecvAsync(_ context.Context, _ int64, _ rendezvous.Key, _ rendezvous.Args, done rendezvous.DoneFunc) {
	a.first()
	done(rendezvous.Value{}, rendezvous.Args{}, status.New(status.Aborted, "Cleanup 7").Derived())
}
