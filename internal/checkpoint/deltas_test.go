package checkpoint_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"log/slog"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"

	"github.com/tryst-rdma/tryst/internal/checkpoint"
	trystpb "github.com/tryst-rdma/tryst/internal/proto/tryst"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// bf16 returns tensors of so many elements each, with random content from a seed.
func bf16(t testing.TB, seed uint64, sizes ...int64) []*tensor.Tensor {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // reproducible
	var all []*tensor.Tensor
	for i, size := range sizes {
		x, err := tensor.Allocate(tensor.Heap{}, tensor.BFloat16, tensor.Vector(int(size)))
		must(t, err)
		for b := x.Bytes(); len(b) >= 2; b = b[2:] {
			binary.LittleEndian.PutUint16(b, uint16(random.Uint32()))
		}
		t.Cleanup(x.Release)
		all = append(all, x.Named(string(rune('a'+i))))
	}
	return all
}

// changed returns copies in which one element of each n is another one.
func changed(t testing.TB, all []*tensor.Tensor, n int) []*tensor.Tensor {
	t.Helper()
	var copies []*tensor.Tensor
	for _, x := range all {
		c, err := x.Clone(tensor.Heap{})
		must(t, err)
		for i := 0; i+2 <= len(c.Bytes()); i += 2 * n {
			c.Bytes()[i] ^= 5
		}
		t.Cleanup(c.Release)
		copies = append(copies, c.Named(x.Name()))
	}
	return copies
}

// nextSame returns the next version, whose tensors must be those.
func (w watched) nextSame(t *testing.T, want []*tensor.Tensor) *checkpoint.Version {
	t.Helper()
	v := <-w.versions
	if v == nil {
		t.Fatal(<-w.err)
	}
	requireSame(t, want, v.Tensors)
	return v
}

func TestWatcherTakesADelta(t *testing.T) {
	h := publisher(t)
	first := bf16(t, 1, 100_000, 50_000, 10)
	h.update(first, checkpoint.UpdateOptions{})
	w := h.dial().watch(t, checkpoint.WatchRequest{})
	v := w.nextSame(t, first)
	second := changed(t, first, 100)
	second[1] = first[1]
	h.told(t, 1, 1)
	h.update(second, checkpoint.UpdateOptions{})
	next := w.nextSame(t, second)
	v.Release()
	d := next.Summary.Deltas
	if d.Sparse.Tensors != 1 || d.Nothing.Tensors != 1 || d.Whole.Tensors != 1 || d.Failed != 0 {
		t.Errorf("tensors came so: %+v", d)
	}
	if got := next.Summary.Received(); got > 200_000/50 || got != d.Received() {
		t.Errorf("%d bytes came, %d of deltas", got, d.Received())
	}
	next.Release()
}

// follow lets a watcher take a version of two, and returns how the second one came.
func (h *host) follow(t *testing.T, first, second []*tensor.Tensor, req checkpoint.WatchRequest) checkpoint.Deltas {
	t.Helper()
	h.update(first, checkpoint.UpdateOptions{})
	w := h.dial().watch(t, req)
	v := w.nextSame(t, first)
	h.told(t, 1, 1)
	h.update(second, checkpoint.UpdateOptions{})
	next := w.nextSame(t, second)
	v.Release()
	next.Release()
	return next.Summary.Deltas
}

func TestWatcherTakesADeltaInPlace(t *testing.T) {
	h := publisher(t)
	first := bf16(t, 1, 100_000, 50_000)
	second := changed(t, first, 100)
	second[1] = first[1]
	into := copies(t, first)
	h.update(first, checkpoint.UpdateOptions{})
	n := 0
	req := checkpoint.WatchRequest{Pull: checkpoint.PullRequest{Publication: "w"}, Into: []map[string]*tensor.Tensor{into}}
	for v, err := range h.dial().Watch(t.Context(), req) {
		must(t, err)
		must(t, v.Apply(t.Context()))
		requireSame(t, [][]*tensor.Tensor{first, second}[n], v.Tensors)
		if v.Tensors[0].Buffer() != into["a"].Buffer() {
			t.Error("it is not in place")
		}
		if d := v.Summary.Deltas; n == 1 && (d.Sparse.Tensors != 1 || d.Nothing.Tensors != 1) {
			t.Errorf("tensors came so: %+v", d)
		}
		if n++; n == 2 {
			break
		}
		h.told(t, 1, 1)
		h.update(second, checkpoint.UpdateOptions{})
	}
}

// copies returns memory for tensors, with other content.
func copies(t *testing.T, all []*tensor.Tensor) map[string]*tensor.Tensor {
	t.Helper()
	into := make(map[string]*tensor.Tensor)
	for _, x := range all {
		c, err := tensor.Allocate(tensor.Heap{}, x.DType(), x.Shape())
		must(t, err)
		t.Cleanup(c.Release)
		into[x.Name()] = c
	}
	return into
}

func TestMirrorTakesADelta(t *testing.T) {
	for _, out := range []string{"/out/", "/w.safetensors"} {
		h := publisher(t)
		versions := [][]*tensor.Tensor{bf16(t, 1, 100_000, 50_000)}
		for range 2 {
			versions = append(versions, changed(t, versions[len(versions)-1], 100))
			versions[len(versions)-1][1] = versions[0][1]
		}
		dir := t.TempDir()
		n, enough := 0, errors.New("enough")
		h.update(versions[0], checkpoint.UpdateOptions{})
		err := h.dial().Mirror(t.Context(), checkpoint.PullRequest{Publication: "w"}, checkpoint.SaveOptions{Out: dir + out},
			func(_ context.Context, m checkpoint.Mirrored) error {
				path := m.Path
				if strings.HasSuffix(out, "/") {
					path = filepath.Join(path, "w.safetensors")
				}
				want := writeSafetensors(t, filepath.Join(t.TempDir(), "want.safetensors"), nil, versions[n]...)
				if !bytes.Equal(readFile(t, path), readFile(t, want)) {
					t.Errorf("version %d is wrong", n)
				}
				if d := m.Summary.Deltas; n > 0 && (d.Sparse.Tensors != 1 || d.Nothing.Tensors != 1 || d.Failed != 0) {
					t.Errorf("tensors came so: %+v", d)
				}
				if n++; n == len(versions) {
					return enough
				}
				h.told(t, 1, uint64(n)) //nolint:gosec // never negative
				h.update(versions[n], checkpoint.UpdateOptions{})
				return nil
			})
		if !errors.Is(err, enough) {
			t.Error(err)
		}
	}
}

func TestChangedShapeTakesTheWhole(t *testing.T) {
	first := bf16(t, 1, 100_000, 50_000, 1000)
	second := bf16(t, 1, 100_000, 60_000, 1000)
	x, err := tensor.New(tensor.Float16, second[2].Shape(), second[2].Buffer().Retain())
	must(t, err)
	t.Cleanup(x.Release)
	second[2] = x.Named("c") // the same bytes with another type
	d := publisher(t).follow(t, first, second, checkpoint.WatchRequest{})
	if d.Nothing.Tensors != 1 || d.Whole.Tensors != 2 || d.Failed != 0 {
		t.Errorf("tensors came so: %+v", d)
	}
}

func TestDeltasAreSwitchedOff(t *testing.T) {
	first := bf16(t, 1, 100_000)
	second := changed(t, first, 100)
	d := publisher(t).follow(t, first, second, checkpoint.WatchRequest{Pull: checkpoint.PullRequest{Whole: true}})
	if d.Whole.Tensors != 1 || d.Failed != 0 {
		t.Errorf("a watcher that takes none: %+v", d)
	}
	// The server does as one that does not know the field.
	h := publisher(t, func(o *checkpoint.CatalogOptions) { o.NoDeltas = true })
	if d := h.follow(t, first, second, checkpoint.WatchRequest{}); d.Whole.Tensors != 1 || d.Failed != 0 {
		t.Errorf("a server without: %+v", d)
	}
}

func TestUpdateThatChangesNothingBringsNothing(t *testing.T) {
	h := publisher(t)
	sizes := make([]int64, 60)
	for i := range sizes {
		sizes[i] = 1000
	}
	all := bf16(t, 1, sizes...)
	d := h.follow(t, all, all, checkpoint.WatchRequest{})
	if d.Nothing.Tensors != len(all) || d.Received() != 0 {
		t.Errorf("tensors came so: %+v", d)
	}
	if n := h.ended.Load(); n > 1 {
		t.Errorf("%d pulls were opened, want one", n)
	}
}

// isDelta reports whether a key is that of a delta.
func isDelta(key rendezvous.Key) bool { return strings.Contains(key.Edge(), "@<") }

func TestDeltaOfALostBaseTakesTheWhole(t *testing.T) {
	first := bf16(t, 1, 100_000, 10_000)
	second := changed(t, first, 100)
	t.Run("at the server", func(t *testing.T) {
		h := publisher(t)
		h.answer = func(key rendezvous.Key, v rendezvous.Value, err error) (rendezvous.Value, error) {
			if !isDelta(key) {
				return v, err
			}
			v.Tensor.Release()
			return rendezvous.Value{}, status.New(status.NotFound, "the delta is not here any more")
		}
		if d := h.follow(t, first, second, checkpoint.WatchRequest{}); d.Whole.Tensors != 2 || d.Failed != 2 {
			t.Errorf("tensors came so: %+v", d)
		}
	})
	t.Run("at the watcher", func(t *testing.T) {
		h := publisher(t)
		maps := []map[string]*tensor.Tensor{copies(t, first), copies(t, first)}
		h.update(first, checkpoint.UpdateOptions{})
		w := h.dial().watch(t, checkpoint.WatchRequest{Into: maps})
		v := w.nextSame(t, first)
		v.Tensors[0].Bytes()[77] ^= 1 // which nobody may do
		h.told(t, 1, 1)
		h.update(second, checkpoint.UpdateOptions{})
		next := w.nextSame(t, second)
		if d := next.Summary.Deltas; d.Whole.Tensors != 1 || d.Sparse.Tensors != 1 || d.Failed != 1 {
			t.Errorf("tensors came so: %+v", d)
		}
		v.Release()
		next.Release()
	})
	t.Run("of a tensor that did not change", func(t *testing.T) {
		h := publisher(t)
		maps := []map[string]*tensor.Tensor{copies(t, first), copies(t, first)}
		h.update(first, checkpoint.UpdateOptions{})
		w := h.dial().watch(t, checkpoint.WatchRequest{Into: maps})
		v := w.nextSame(t, first)
		v.Tensors[1].Bytes()[7] ^= 1 // which nobody may do
		third := []*tensor.Tensor{second[0], first[1]}
		h.told(t, 1, 1)
		h.update(third, checkpoint.UpdateOptions{})
		next := w.nextSame(t, third)
		if d := next.Summary.Deltas; d.Whole.Tensors != 1 || d.Sparse.Tensors != 1 || d.Failed != 1 {
			t.Errorf("tensors came so: %+v", d)
		}
		v.Release()
		next.Release()
	})
	t.Run("of another life", func(t *testing.T) {
		h := publisher(t)
		h.update(first, checkpoint.UpdateOptions{})
		w := h.dial().watch(t, checkpoint.WatchRequest{})
		v := w.nextSame(t, first)
		must(t, h.withdraw("w"))
		h.update(second, checkpoint.UpdateOptions{})
		next := w.nextSame(t, second)
		if d := next.Summary.Deltas; d.Whole.Tensors != 2 || d.Failed != 0 {
			t.Errorf("tensors came so: %+v", d)
		}
		v.Release()
		next.Release()
	})
}

func TestDeltaThatDoesNotMatchTakesTheWhole(t *testing.T) {
	first := bf16(t, 1, 100_000)
	second := changed(t, first, 100)
	bomb, err := hex.DecodeString("28b52ffd0458")
	must(t, err)
	for name, lie := range map[string]func(b []byte){
		"another value":            func(b []byte) { b[len(b)/2] ^= 16 },
		"another base":             func(b []byte) { b[6] ^= 1 },
		"another length":           func(b []byte) { b[2] ^= 1 },
		"positions beyond the end": func(b []byte) { fill(b[len(b)-100:], 0) },
		"only ones":                func(b []byte) { fill(b[40:], 0xff) },
		"a terabyte":               func(b []byte) { b[23] = 2; copy(b[26:], bomb) },
		"nothing":                  func(b []byte) { fill(b, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			h := publisher(t)
			h.answer = func(key rendezvous.Key, v rendezvous.Value, err error) (rendezvous.Value, error) {
				if isDelta(key) {
					lie(v.Tensor.Bytes())
				}
				return v, err
			}
			if d := h.follow(t, first, second, checkpoint.WatchRequest{}); d.Whole.Tensors != 1 || d.Failed != 1 {
				t.Errorf("tensors came so: %+v", d)
			}
		})
	}
	for name, change := range map[string]func(v *rendezvous.Value) *tensor.Tensor{
		"cut":  func(v *rendezvous.Value) *tensor.Tensor { return named(t, "x", tensor.Uint8, v.Tensor.Size()-1) },
		"long": func(v *rendezvous.Value) *tensor.Tensor { return named(t, "x", tensor.Uint8, 1<<20) },
		"type": func(v *rendezvous.Value) *tensor.Tensor { return named(t, "x", tensor.Int8, v.Tensor.Size()) },
	} {
		t.Run(name, func(t *testing.T) {
			h := publisher(t)
			h.answer = func(key rendezvous.Key, v rendezvous.Value, err error) (rendezvous.Value, error) {
				if isDelta(key) {
					v.Tensor.Release()
					v.Tensor = change(&v).Retain()
				}
				return v, err
			}
			if d := h.follow(t, first, second, checkpoint.WatchRequest{}); d.Whole.Tensors != 1 || d.Failed != 1 {
				t.Errorf("tensors came so: %+v", d)
			}
		})
	}
}

func fill(b []byte, with byte) {
	for i := range b {
		b[i] = with
	}
}

func TestDeltaWhoseConnectionBreaksEndsNoWatch(t *testing.T) {
	first := bf16(t, 1, 100_000, 20_000)
	second := changed(t, first, 100)
	h := publisher(t)
	var broken atomic.Bool
	h.answer = func(key rendezvous.Key, v rendezvous.Value, err error) (rendezvous.Value, error) {
		if isDelta(key) && !broken.Swap(true) {
			v.Tensor.Release()
			return rendezvous.Value{}, status.New(status.Unavailable, "the connection broke")
		}
		return v, err
	}
	if d := h.follow(t, first, second, checkpoint.WatchRequest{}); d.Whole.Tensors != 1 || d.Failed != 1 || d.Sparse.Tensors != 1 {
		t.Errorf("tensors came so: %+v", d)
	}
}

// madeLog counts the lines about deltas that were made.
type madeLog struct{ n atomic.Int64 }

func (*madeLog) Enabled(context.Context, slog.Level) bool { return true }
func (l *madeLog) WithAttrs([]slog.Attr) slog.Handler     { return l }
func (l *madeLog) WithGroup(string) slog.Handler          { return l }
func (l *madeLog) Handle(_ context.Context, r slog.Record) error {
	if r.Message == "deltas were made" {
		l.n.Add(1)
	}
	return nil
}

func TestDeltasAreMadeOnce(t *testing.T) {
	made := new(madeLog)
	h := publisher(t, func(o *checkpoint.CatalogOptions) { o.Logger = slog.New(made) })
	first := bf16(t, 1, 100_000)
	h.update(first, checkpoint.UpdateOptions{})
	h.update(first, checkpoint.UpdateOptions{}) // nobody wants deltas yet
	var all []watched
	for range 3 {
		all = append(all, h.dial().watch(t, checkpoint.WatchRequest{}))
	}
	var held []*checkpoint.Version
	for _, w := range all {
		held = append(held, w.nextSame(t, first))
	}
	second := changed(t, first, 100)
	h.told(t, 3, 2)
	h.update(second, checkpoint.UpdateOptions{})
	for _, w := range all {
		v := w.nextSame(t, second)
		if d := v.Summary.Deltas; d.Sparse.Tensors != 1 {
			t.Errorf("tensors came so: %+v", d)
		}
		v.Release()
	}
	for _, v := range held {
		v.Release()
	}
	h.catalog.Close() // who makes deltas says so after they are there
	if n := made.n.Load(); n != 1 {
		t.Errorf("deltas were made %d times", n)
	}
	sent := int64(0)
	h.catalog.Saved(func(method string, n, stood int64) {
		if sent += n; method == "sparse" && stood != 3*200_000 {
			t.Errorf("sparse deltas stood for %d bytes", stood)
		}
	})
	if sent < 3*1000 || sent > 3*200_000/50 {
		t.Errorf("%d bytes of deltas were sent", sent)
	}
}

func TestOldBaseByTheChain(t *testing.T) {
	h := publisher(t)
	first := bf16(t, 1, 100_000, 30_000)
	h.update(first, checkpoint.UpdateOptions{})
	behind := h.dial()
	slow, fast := behind.watch(t, checkpoint.WatchRequest{}), h.dial().watch(t, checkpoint.WatchRequest{})
	v := slow.nextSame(t, first)
	fast.nextSame(t, first).Release()
	var second *checkpoint.Version
	last := first
	for n := range 5 {
		last = changed(t, last, 100+n)
		last[1] = first[1]
		h.watching(t, "with what they have", func(all []checkpoint.Watching) bool {
			return len(all) == 2 && min(all[0].Number, all[1].Number) == uint64(min(n+1, 2)) && max(all[0].Number, all[1].Number) == uint64(n+1) //nolint:gosec // never negative
		})
		h.update(last, checkpoint.UpdateOptions{})
		fast.nextSame(t, last).Release() // it has waited for the deltas
		if n == 0 {
			second = slow.nextSame(t, last) // it holds two versions, and can begin no pull before it gives one back
		}
	}
	behind.is(t, "told of the last version", func(s checkpoint.WatchState) bool { return s.NewestNumber == 6 })
	v.Release()
	next := slow.nextSame(t, last)
	if d := next.Summary.Deltas; d.Sparse.Tensors != 1 || d.Nothing.Tensors != 1 || d.Whole.Tensors != 0 {
		t.Errorf("number %d: tensors came so: %+v", next.Number, d)
	}
	second.Release()
	next.Release()
}

// opens is the stream of an Open that passes its request on.
type opens struct {
	grpc.ServerStream
	all chan<- *trystpb.DeltaRequest
}

func (o opens) RecvMsg(m any) error {
	err := o.ServerStream.RecvMsg(m)
	if req, ok := m.(*trystpb.OpenRequest); ok && err == nil {
		o.all <- req.GetDeltas()
	}
	return err
}

// A watcher says what it has, and what it has measured of its route.
func TestWatcherTellsItsRoute(t *testing.T) {
	h := publisher(t)
	h.grpc.Stop()
	all := make(chan *trystpb.DeltaRequest, 10)
	h.listen(grpc.NewServer(grpc.StreamInterceptor(func(srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
		return next(srv, opens{s, all})
	})), func(r grpc.ServiceRegistrar) grpc.ServiceRegistrar { return r })
	first := bf16(t, 1, 1_000_000)
	p := h.update(first, checkpoint.UpdateOptions{}).Publication
	w := h.dial().watch(t, checkpoint.WatchRequest{})
	w.nextSame(t, first).Release()
	if req := <-all; req.GetNumber() != 0 || req.GetRate() != 0 {
		t.Errorf("the first request: %v", req)
	}
	second := changed(t, first, 100)
	h.update(second, checkpoint.UpdateOptions{})
	w.nextSame(t, second).Release()
	if req := <-all; req.GetNumber() != p.Number || req.GetEpoch() != p.Epoch || req.GetRate() == 0 || req.GetRoundTrip() == 0 {
		t.Errorf("the second request: %v", req)
	}
}

// nextOf returns the next version, whatever it is.
func (w watched) nextOf(t *testing.T) *checkpoint.Version {
	t.Helper()
	v := <-w.versions
	if v == nil {
		t.Fatal(<-w.err)
	}
	return v
}

func TestDeltasThatBreakEachSessionEndNoWatch(t *testing.T) {
	first := bf16(t, 1, 100_000, 20_000, 20_000, 20_000, 20_000, 20_000)
	second := changed(t, first, 100)
	h := publisher(t)
	h.answer = func(key rendezvous.Key, v rendezvous.Value, err error) (rendezvous.Value, error) {
		if isDelta(key) {
			v.Tensor.Release()
			return rendezvous.Value{}, status.New(status.Unavailable, "the connection broke")
		}
		return v, err
	}
	if d := h.follow(t, first, second, checkpoint.WatchRequest{}); d.Whole.Tensors != 6 || d.Failed < 3 || d.Failed > 12 {
		t.Errorf("tensors came so: %+v", d)
	}
}

// Watchers of all kinds follow a trainer that changes little, much, all, nothing, shapes and types, over a network that
// damages and loses deltas. What they get is always right, ascends, and the newest one comes.
func TestWatchersFollowATrainerByDeltas(t *testing.T) {
	rounds := 40
	if testing.Short() {
		rounds = 8
	}
	for _, seed := range []uint64{1, 2, 3} {
		random := rand.New(rand.NewPCG(seed, 4)) //nolint:gosec // reproducible
		h := publisher(t)
		var faults atomic.Uint64
		h.answer = func(key rendezvous.Key, v rendezvous.Value, err error) (rendezvous.Value, error) {
			if n := faults.Add(1); err == nil && isDelta(key) && n%5 == 0 {
				if n%2 == 0 {
					v.Tensor.Release()
					return rendezvous.Value{}, status.New(status.NotFound, "it is gone")
				}
				v.Tensor.Bytes()[int(n)%int(v.Tensor.Size())] ^= byte(n) | 1
			}
			return v, err
		}
		want := sync.Map{} // the tensors of each number
		model := bf16(t, seed, 40_000, 3000, 20, 70_000)
		publish := func() uint64 {
			p := h.update(model, checkpoint.UpdateOptions{Drop: random.IntN(4) == 0}).Publication
			want.Store(p.Number, model)
			return p.Number
		}
		last := make(chan uint64, 4)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan checkpoint.Deltas, 4)
		for kind := range 4 {
			req := checkpoint.WatchRequest{Pull: checkpoint.PullRequest{Publication: "w"}}
			switch kind {
			case 1:
				req.Pull.Whole = true
			case 2:
				req.Into = []map[string]*tensor.Tensor{{}} // in place; filled below
				maps.Copy(req.Into[0], copies(t, model[:2]))
			}
			go h.checkWatch(ctx, t, req, &want, last, ended)
		}
		var number uint64
		newest := 0 // watchers that have it
		take := func() {
			if n := <-last; n == number {
				newest++
			}
		}
		for range rounds {
			if number == 0 || random.IntN(8) > 0 {
				model = trained(t, random, model)
			}
			number, newest = publish(), 0
			for newest < random.IntN(5) { // let some of them take it
				take()
			}
		}
		for newest < 4 {
			take()
		}
		cancel()
		sum := 0
		for range 4 {
			d := <-ended
			sum += d.Sparse.Tensors + d.XOR.Tensors
		}
		t.Logf("%d tensors were made by deltas", sum) // few where the machine is so busy that all watchers skip versions
	}
}

// trained returns the next version of a model. The first two tensors keep their shapes.
func trained(t *testing.T, random *rand.Rand, model []*tensor.Tensor) []*tensor.Tensor {
	t.Helper()
	next := slices.Clone(model)
	for i := range next {
		switch random.IntN(6) {
		case 0: // unchanged
		case 1:
			next[i] = bf16(t, random.Uint64(), model[i].Shape().Dims()[0])[0].Named(model[i].Name())
		case 2:
			if i >= 2 {
				next[i] = bf16(t, random.Uint64(), 1+random.Int64N(50_000))[0].Named(model[i].Name())
			}
		default:
			next[i] = changed(t, model[i:i+1], 1+random.IntN(300))[0]
		}
	}
	return next
}

// checkWatch follows until ctx ends.
func (h *host) checkWatch(ctx context.Context, t *testing.T, req checkpoint.WatchRequest, want *sync.Map, last chan<- uint64, ended chan<- checkpoint.Deltas) {
	var sum checkpoint.Deltas
	defer func() { ended <- sum }()
	before := uint64(0)
	for v, err := range h.dial().Watch(ctx, req) {
		if err != nil {
			if ctx.Err() == nil {
				t.Error(err)
			}
			return
		}
		if err := v.Apply(ctx); err != nil {
			if ctx.Err() == nil {
				t.Error(err)
			}
			return
		}
		model, ok := want.Load(v.Number)
		all, is := model.([]*tensor.Tensor)
		if v.Number <= before || ok && !is {
			t.Errorf("number %d came after %d", v.Number, before)
		}
		for i, x := range v.Tensors {
			if ok && !tensor.Equal(all[i], x) {
				t.Errorf("tensor %s of number %d is wrong: %+v", x.Name(), v.Number, v.Summary.Deltas)
			}
		}
		before = v.Number
		sum.Sparse.Tensors += v.Summary.Deltas.Sparse.Tensors
		sum.XOR.Tensors += v.Summary.Deltas.XOR.Tensors
		v.Release()
		select {
		case last <- v.Number:
		case <-ctx.Done():
			return
		}
	}
}
