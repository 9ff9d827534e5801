package checkpoint_test

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/tryst-rdma/tryst/internal/checkpoint"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// watched is what a watch yields, in a test's own time.
type watched struct {
	versions chan *checkpoint.Version // without space: the loop waits for the test
	err      chan error
	stop     func()
}

func (c *client) watch(t *testing.T, req checkpoint.WatchRequest) watched {
	t.Helper()
	if req.Pull.Publication == "" {
		req.Pull.Publication = "w"
	}
	ctx, cancel := context.WithCancel(t.Context())
	w := watched{make(chan *checkpoint.Version), make(chan error, 1), cancel}
	go func() {
		defer close(w.versions)
		for v, err := range c.Watch(ctx, req) {
			if err != nil {
				w.err <- err
				return
			}
			select {
			case w.versions <- v:
			case <-ctx.Done():
				v.Release()
				return
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		for v := range w.versions {
			v.Release()
		}
	})
	return w
}

// next returns the next version, whose content must be n everywhere.
func (w watched) next(t *testing.T, n float32) *checkpoint.Version {
	t.Helper()
	select {
	case v := <-w.versions:
		if v == nil {
			t.Fatal(<-w.err)
		}
		if got := numberOf(t, v.Tensors); got != n {
			t.Fatalf("the watch yielded content %v, number %d; want %v", got, v.Number, n)
		}
		return v
	case <-time.After(20 * time.Second):
		t.Fatalf("the watch yields nothing; want %v", n)
		return nil
	}
}

func TestWatchYieldsEachVersionOnce(t *testing.T) {
	h := publisher(t)
	w := h.dial().watch(t, checkpoint.WatchRequest{})
	for n := range 5 {
		p := h.update(weights(t, float32(n), 10, 3<<20), checkpoint.UpdateOptions{}).Publication
		v := w.next(t, float32(n))
		if v.Number != p.Number || v.Epoch != p.Epoch || v.Version != p.Version || len(v.Tensors) != 2 || v.Summary.Tensors != 2 {
			t.Errorf("got %+v, want %+v", v.Publication, p)
		}
		v.Release()
		v.Release()
	}
}

func TestWatchIsDoubleBuffered(t *testing.T) {
	h := publisher(t)
	w := h.dial().watch(t, checkpoint.WatchRequest{})
	h.update(weights(t, 1, 100), checkpoint.UpdateOptions{})
	first := w.next(t, 1)
	h.update(weights(t, 2, 100), checkpoint.UpdateOptions{})
	second := w.next(t, 2)
	if numberOf(t, first.Tensors) != 1 {
		t.Error("the version that the caller has was written to")
	}
	memory := first.Tensors[0].Buffer()
	first.Release()
	h.update(weights(t, 3, 100), checkpoint.UpdateOptions{})
	third := w.next(t, 3)
	if third.Tensors[0].Buffer() != memory {
		t.Error("a third buffer is in use")
	}
	if numberOf(t, second.Tensors) != 2 {
		t.Error("the version that the caller has was written to")
	}
	second.Release()
	third.Release()
}

func TestASlowWatcherSkipsVersionsAndHoldsBackNobody(t *testing.T) {
	h := publisher(t)
	w := h.dial().watch(t, checkpoint.WatchRequest{})
	h.update(weights(t, 1, 100), checkpoint.UpdateOptions{})
	first := w.next(t, 1)
	first.Release()
	h.update(weights(t, 2, 100), checkpoint.UpdateOptions{})
	second := <-w.versions // the loop has asked for it, and the next is not asked for before this comes
	for n := range 50 {
		h.update(weights(t, float32(3+n), 100), checkpoint.UpdateOptions{}) // none waits
	}
	second.Release()
	for v := range w.versions {
		n := numberOf(t, v.Tensors)
		if v.Release(); n == 52 {
			break
		}
	}
}

func TestWatchWaitsForAPublication(t *testing.T) {
	h := publisher(t)
	w := h.dial().watch(t, checkpoint.WatchRequest{})
	h.update(weights(t, 1, 10), checkpoint.UpdateOptions{})
	w.next(t, 1).Release()
	must(t, h.withdraw("w"))
	h.update(weights(t, 2, 10), checkpoint.UpdateOptions{}) // number 1 again, of another epoch
	w.next(t, 2).Release()
	h.update(weights(t, 2, 10), checkpoint.UpdateOptions{}) // the same content is a version, too
	if v := w.next(t, 2); v.Number != 2 {
		t.Errorf("number %d", v.Number)
	} else {
		v.Release()
	}
}

func TestWatchOutlivesARestartToAnOlderNumber(t *testing.T) {
	old := publisher(t)
	c := old.dial()
	events := make(chan checkpoint.Interruption, 10)
	w := c.watch(t, checkpoint.WatchRequest{Pull: checkpoint.PullRequest{Interrupted: func(i checkpoint.Interruption) { events <- i }}})
	old.update(weights(t, 7, 10), checkpoint.UpdateOptions{Number: 7})
	w.next(t, 7).Release()
	old.watching(t, "on the stream that breaks", one(7, 0, checkpoint.ByWhole))
	old.stop()
	anew := publisher(t)
	anew.update(weights(t, 3, 10), checkpoint.UpdateOptions{Number: 3})
	c.moveTo(anew)
	v := w.next(t, 3)
	if v.Number != 3 {
		t.Errorf("number %d", v.Number)
	}
	v.Release()
	if i := <-events; i.Err == nil {
		t.Errorf("the break was reported as %+v", i)
	}
	if i := <-events; i.Err != nil {
		t.Errorf("the return was reported as %+v", i)
	}
}

func TestWatchEndsWhenTwoServersAnswer(t *testing.T) {
	a, b := publisher(t), publisher(t)
	a.update(weights(t, 1, 10), checkpoint.UpdateOptions{})
	b.update(weights(t, 2, 10), checkpoint.UpdateOptions{})
	c := a.dial()
	w := c.watch(t, checkpoint.WatchRequest{})
	w.next(t, 1).Release()
	c.moveTo(b)
	w.next(t, 2).Release()
	c.moveTo(a)
	mustBe(t, <-w.err, status.FailedPrecondition, "two servers")
}

func TestWatchTakesShapesThatChange(t *testing.T) {
	h := publisher(t)
	w := h.dial().watch(t, checkpoint.WatchRequest{})
	for n, sizes := range [][]int64{{10, 20}, {30, 20}, {5}, {5, 6, 7}, {0, 6}} {
		h.update(weights(t, float32(n), sizes...), checkpoint.UpdateOptions{})
		v := w.next(t, float32(n))
		for i, x := range v.Tensors {
			if x.Shape().Elements() != sizes[i] {
				t.Errorf("version %d: tensor %d is %v", n, i, x)
			}
		}
		v.Release()
	}
}

// memoryFor returns memory for the tensors of weights.
func memoryFor(t *testing.T, sizes ...int64) map[string]*tensor.Tensor {
	m := make(map[string]*tensor.Tensor)
	for _, x := range weights(t, -2, sizes...) {
		m[x.Name()] = x
	}
	return m
}

func TestWatchIntoTwoMapsInTurn(t *testing.T) {
	h := publisher(t)
	into := []map[string]*tensor.Tensor{memoryFor(t, 10), memoryFor(t, 10)}
	w := h.dial().watch(t, checkpoint.WatchRequest{Into: into})
	for n := range 4 {
		h.update(weights(t, float32(n), 10), checkpoint.UpdateOptions{})
		v := w.next(t, float32(n))
		if got := numberOf(t, []*tensor.Tensor{into[n%2]["a"]}); got != float32(n) {
			t.Errorf("version %d: the memory has %v", n, got)
		}
		v.Release()
	}
	h.update(weights(t, 4, 11), checkpoint.UpdateOptions{})
	mustBe(t, <-w.err, status.InvalidArgument, "a", "Into")
}

func TestWatchInPlaceWritesOnlyDuringApply(t *testing.T) {
	h := publisher(t)
	into := memoryFor(t, 10)
	is := func(when string, want float32) {
		t.Helper()
		if got := numberOf(t, []*tensor.Tensor{into["a"]}); got != want {
			t.Errorf("%s the memory has %v, not %v", when, got, want)
		}
	}
	update := func(n float32) { h.update(weights(t, n, 10), checkpoint.UpdateOptions{}) }
	update(1)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	round := 0
	req := checkpoint.WatchRequest{Pull: checkpoint.PullRequest{Publication: "w"}, Into: []map[string]*tensor.Tensor{into}}
	for v, err := range h.dial().Watch(t.Context(), req) {
		must(t, err)
		switch round++; round {
		case 1:
			is("before Apply", -2)
			must(t, v.Apply(t.Context()))
			is("after Apply", 1)
			update(2)
		case 2:
			update(3)
			update(4)
			is("before Apply", 1)
			must(t, v.Apply(t.Context())) // the version that was yielded is gone
			is("after Apply", 4)
			if v.Number != 4 {
				t.Errorf("number %d", v.Number)
			}
			update(5)
		case 3:
			mustBe(t, v.Apply(ended), status.Cancelled)
			must(t, v.Apply(t.Context()))
			is("after Apply", 5)
			update(6)
		case 4: // not applied, and not yielded again
			update(7)
		case 5:
			if v.Number != 7 {
				t.Errorf("number %d", v.Number)
			}
			is("without Apply", 5)
			return
		}
	}
}

func TestWatchRefusesThreeMaps(t *testing.T) {
	h := publisher(t)
	w := h.dial().watch(t, checkpoint.WatchRequest{Into: make([]map[string]*tensor.Tensor, 3)})
	mustBe(t, <-w.err, status.InvalidArgument, "3 maps")
}

// older is a server without Watch and numbers.
type older struct{ grpc.ServiceRegistrar }

func (o older) RegisterService(desc *grpc.ServiceDesc, impl any) {
	d := *desc
	d.Streams = nil
	for _, s := range desc.Streams {
		if s.StreamName != "Watch" {
			d.Streams = append(d.Streams, s)
		}
	}
	o.ServiceRegistrar.RegisterService(&d, impl)
}

func TestWatchOfAnOlderServerListsItsPublications(t *testing.T) {
	h := publisher(t)
	h.makeOlder()
	w := h.dial().watch(t, checkpoint.WatchRequest{})
	h.update(weights(t, 1, 10), checkpoint.UpdateOptions{})
	w.next(t, 1).Release()
	h.update(weights(t, 2, 10), checkpoint.UpdateOptions{})
	w.next(t, 2).Release()
	h.update(weights(t, 1, 10), checkpoint.UpdateOptions{}) // it has no numbers: another content is newer
	w.next(t, 1).Release()
}
