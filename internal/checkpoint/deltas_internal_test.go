package checkpoint

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/tryst-rdma/tryst/internal/delta"
	trystpb "github.com/tryst-rdma/tryst/internal/proto/tryst"
	"github.com/tryst-rdma/tryst/tensor"
)

// trainer has a catalog and makes versions of a model, of which a puller wants deltas.
type trainer struct {
	t      *testing.T
	c      *Catalog
	random *rand.Rand
	model  []*tensor.Tensor
}

func newTrainer(t *testing.T, tensors, bytes int, rate float64) *trainer {
	t.Helper()
	tr := &trainer{t: t, c: manyTensors(t, 1, 8, "x"), random: rand.New(rand.NewPCG(1, 2))} //nolint:gosec // reproducible
	for i := range tensors {
		x := tr.allocate(bytes)
		for b := x.Bytes(); len(b) >= 8; b = b[8:] {
			binary.LittleEndian.PutUint64(b, tr.random.Uint64())
		}
		tr.model = append(tr.model, x.Named(fmt.Sprint("t", i)))
	}
	tr.update()
	tr.c.watches(tr.line(), new(listening))
	tr.taken(rate)
	return tr
}

// taken lets a puller take the current version.
func (tr *trainer) taken(rate float64) {
	l := tr.line()
	tr.c.mu.Lock()
	defer tr.c.mu.Unlock()
	l.deltas.takers.note("/job:rollout/task:0", rate, l.deltas.entered)
}

func (tr *trainer) allocate(bytes int) *tensor.Tensor {
	tr.t.Helper()
	x, err := tensor.Allocate(tensor.Heap{}, tensor.BFloat16, tensor.Vector(bytes/2))
	if err != nil {
		tr.t.Fatal(err)
	}
	return x
}

func (tr *trainer) line() *line {
	tr.c.mu.Lock()
	defer tr.c.mu.Unlock()
	return tr.c.lineLocked("w")
}

func (tr *trainer) update() *Lent {
	tr.t.Helper()
	lent, err := tr.c.Update(tr.t.Context(), "w", tr.model, UpdateOptions{})
	if err != nil {
		tr.t.Fatal(err)
	}
	return lent
}

// step changes the lowest bits of about one element of n.
func (tr *trainer) step(n int) {
	tr.t.Helper()
	for i, x := range tr.model {
		next := tr.allocate(int(x.Size()))
		copy(next.Bytes(), x.Bytes())
		for at := 2 * tr.random.IntN(n); at < len(next.Bytes()); at += 2 * (1 + tr.random.IntN(2*n)) {
			next.Bytes()[at] ^= byte(1 + tr.random.IntN(3))
		}
		x.Release()
		tr.model[i] = next.Named(x.Name())
	}
}

// made waits until the deltas to the current version are made, and returns what all take.
func (tr *trainer) made() (fresh, all int64) {
	tr.t.Helper()
	l := tr.line()
	tr.c.mu.RLock()
	m := l.deltas.fresh
	tr.c.mu.RUnlock()
	if m == nil {
		return 0, 0
	}
	for _, one := range m.tensors {
		<-one.done
	}
	tr.c.mu.RLock()
	defer tr.c.mu.RUnlock()
	fresh = m.step().Bytes()
	if all = fresh; l.deltas.chain != nil {
		all += l.deltas.chain.Bytes()
	}
	return fresh, all
}

func TestDeltasStayWithinTheirShare(t *testing.T) {
	const tensors, bytes = 8, 512 << 10
	synctest.Test(t, func(t *testing.T) { // making them has a bound of time
		for _, n := range []int{1, 3, 20, 200} {
			tr := newTrainer(t, tensors, bytes, 0)
			kept := 0
			for range 12 {
				tr.step(n)
				lent := tr.update()
				if fresh, all := tr.made(); all > tensors*bytes/deltaShare+tensors*300 || fresh == 0 {
					t.Errorf("one of %d elements changed: deltas of %d bytes, %d in all", n, fresh, all)
				}
				if n >= 20 && len(tr.line().deltas.fresh.step().Deltas) != tensors {
					t.Errorf("one of %d elements changed: the newest deltas are of %d tensors only", n, len(tr.line().deltas.fresh.step().Deltas))
				}
				if _, _, ok := tr.line().deltas.path(1, tr.c.publications["w"]); ok {
					kept++
				}
				if isBack(lent) {
					t.Error("the current version is back")
				}
				tr.taken(0)
			}
			if n == 200 && kept != 12 {
				t.Errorf("one of %d elements changed: the first version leads to %d of 12", n, kept)
			}
		}
	})
}

func isBack(l *Lent) bool {
	select {
	case <-l.Done():
		return true
	default:
		return false
	}
}

// Over a route on which no delta can be earlier, none is made, and the version before is back at once. So it is without
// watchers, and with those that take none.
func TestDeltasAreMadeForThoseWhoGain(t *testing.T) {
	for name, change := range map[string]func(tr *trainer, l *line){
		"fast":                       func(_ *trainer, l *line) { l.deltas.takers.note("/job:rollout/task:0", 2e10, 1) },
		"switched off":               func(tr *trainer, _ *line) { tr.c.o.NoDeltas = true },
		"nobody watches":             func(_ *trainer, l *line) { clear(l.watching) },
		"nobody takes deltas":        func(_ *trainer, l *line) { l.deltas.takers = takers{} },
		"no taker has come for long": func(_ *trainer, l *line) { l.deltas.entered += wantedVersions },
	} {
		t.Run(name, func(t *testing.T) {
			tr := newTrainer(t, 1, 1<<20, 0)
			change(tr, tr.line())
			before := tr.c.publications["w"].lent
			tr.step(100)
			tr.update()
			if fresh, _ := tr.made(); fresh != 0 || !isBack(before) {
				t.Errorf("deltas of %d bytes were made; the memory before is back: %v", fresh, isBack(before))
			}
		})
	}
}

// What deltas are made of comes back when they are made, and soon when they are not needed any more.
func TestMemoryOfDeltasComesBack(t *testing.T) {
	for name, end := range map[string]func(tr *trainer){
		"made":      func(tr *trainer) { tr.made() },
		"withdrawn": func(tr *trainer) { _, _ = tr.c.Withdraw(t.Context(), "w") },
		"closed":    func(tr *trainer) { tr.c.Close() },
		"dropped": func(tr *trainer) {
			tr.step(10)
			if _, err := tr.c.Update(t.Context(), "w", tr.model, UpdateOptions{Drop: true}); err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			tr := newTrainer(t, 4, 4<<20, 0)
			before := tr.c.publications["w"].lent
			tr.step(3)
			tr.update()
			begin := time.Now()
			end(tr)
			if err := before.Wait(t.Context()); err != nil {
				t.Error(err)
			}
			t.Logf("back after %v", time.Since(begin))
		})
	}
}

// A making that is late leaves the rest of the tensors whole, and holds nothing.
func TestDeltasThatAreLateAreNotMade(t *testing.T) {
	tr := newTrainer(t, 2, 1<<20, 0)
	before := tr.c.publications["w"]
	tr.c.mu.Lock()
	held := before.entries[0].held.Retain()
	m := newMaking(before, before)
	tr.c.mu.Unlock()
	defer held.Release()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	tr.c.makeDeltas(ctx, tr.line(), m, 0)
	<-m.looked
	for _, one := range m.tensors {
		<-one.done
		if one.delta.Summary.Method != delta.Whole || one.old != nil {
			t.Errorf("%+v", one)
		}
	}
}

func TestSlowestTakerDecides(t *testing.T) {
	var w takers
	if _, ok := w.slowest(0); ok {
		t.Error("nobody has asked")
	}
	w.note("a", 0, 1)
	w.measured("a", 5e9)
	w.measured("a", 1) // it is known
	w.note("b", 1e9, 3)
	if rate, ok := w.slowest(3); !ok || rate != 1e9 {
		t.Error(rate, ok)
	}
	w.note("b", 9e9, 4)
	if rate, _ := w.slowest(3); rate != 5e9 {
		t.Error(rate)
	}
	if rate, _ := w.slowest(2 + wantedVersions); rate != 9e9 {
		t.Error("a is not forgotten:", rate)
	}
	for i := range 10 * maxWants {
		w.note(fmt.Sprint(i), 1, uint64(i))
	}
	if len(w.of) > maxWants {
		t.Errorf("%d are remembered", len(w.of))
	}
}

// flood lets one puller say a rate under more names than there is room for.
func (w *takers) flood(rate float64, entered uint64) {
	for i := range 2 * maxWants {
		w.note(fmt.Sprint("liar", i), rate, entered)
	}
}

// A puller that says what it likes, under many names and at any time, does not make a slower one count less.
func TestFastTakersDoNotPushOutSlowOnes(t *testing.T) {
	const fastest = float64(1<<64 - 1)
	for name, lie := range map[string]func(w *takers, entered uint64){
		"fast":           func(w *takers, entered uint64) { w.flood(fastest, entered) },
		"unmeasured":     func(w *takers, entered uint64) { w.flood(0, entered) },
		"slow, then":     func(w *takers, entered uint64) { w.flood(1, entered); w.flood(fastest, entered) },
		"slow in turns":  func(w *takers, entered uint64) { w.flood([]float64{1, fastest}[entered%2], entered) },
		"under its name": func(w *takers, entered uint64) { w.note("honest", fastest, entered) },
	} {
		for _, first := range []bool{true, false} {
			var w takers
			for entered := range uint64(wantedVersions) {
				if rate, ok := w.slowest(entered); entered > 0 && (!ok || rate > 1e8) {
					t.Errorf("%s, first %v: the slowest of version %d has the rate %v (%v)", name, first, entered, rate, ok)
				}
				if first {
					lie(&w, entered)
				}
				w.note("honest", 1e8, entered)
				if !first {
					lie(&w, entered)
				}
			}
			if len(w.of) > maxWants {
				t.Errorf("%s: %d are remembered", name, len(w.of))
			}
			if _, is := w.of["honest"]; name == "fast" && !is {
				t.Error("the slowest one has lost its name")
			}
		}
	}
}

// Those for which there was no room count no longer than others.
func TestTakersWithoutRoomAreForgotten(t *testing.T) {
	var w takers
	w.flood(1e9, 1)
	if rate, ok := w.slowest(1 + wantedVersions); !ok || rate != 1e9 || w.rest == nil {
		t.Error(rate, ok)
	}
	if rate, ok := w.slowest(2 + wantedVersions); ok {
		t.Errorf("the rate %v still counts", rate)
	}
}

// A puller says no rate when it opens a pull before it has measured any.
func TestMeasuredRateStays(t *testing.T) {
	var w takers
	w.note("a", 0, 1)
	w.measured("a", 5e9)
	w.note("a", 0, 2)
	if rate, ok := w.slowest(2); !ok || rate != 5e9 {
		t.Error(rate, ok)
	}
}

func TestDeltaEdge(t *testing.T) {
	k := deltaKey{publication: "a@/b", tensor: "layer/0", epoch: 1<<64 - 1, from: 3, to: 17}
	if got, ok := parseDeltaEdge(k.edge()); !ok || got != k {
		t.Errorf("%+v %v", got, ok)
	}
	for _, s := range []string{
		EdgeName("a", "0123456789abcdef", "t"), EdgeName("a", "<1.2", "t"), EdgeName("a", "<1.02.3", "t"), EdgeName("a", "<1.2.3.4", "t"),
		EdgeName("a", "<-1.2.3", "t"), edgeName("a", "<1.2.3", "t", piece{0, 1 << 20}), "<1.2.3",
	} {
		if k, ok := parseDeltaEdge(s); ok {
			t.Errorf("%s is %+v", s, k)
		}
	}
}

func FuzzDeltaEdge(f *testing.F) {
	f.Add("publication:w@<1.2.3/t")
	f.Add("publication:w@<18446744073709551615.0.18446744073709551616/t")
	f.Fuzz(func(t *testing.T, s string) {
		if k, ok := parseDeltaEdge(s); ok && k.edge() != s {
			t.Errorf("%q is written %q", s, k.edge())
		}
	})
}

// FuzzOffer lets a server offer what it wants: what is taken has a base that the watcher has, ends at the wanted tensor, and is
// not longer than it.
func FuzzOffer(f *testing.F) {
	e := TensorInfo{Name: "t", DType: tensor.Uint8, Shape: tensor.Vector(100), Bytes: 100, Digest: []byte("12345678")}
	key := "/job:worker/replica:0/task:0/device:CPU:0;0000000000000001;/job:client/replica:0/task:1/device:CPU:0;publication:w@<1.2.3/t;0:0"
	for _, d := range []*trystpb.TensorDelta{
		{Name: "t", Base: []byte("abcdefgh"), Steps: []*trystpb.DeltaStep{{Key: key, Bytes: 30, Result: []byte("12345678"), Method: 2}}},
		{Name: "t", Base: []byte("abcdefgh"), Steps: []*trystpb.DeltaStep{{Key: key, Bytes: 1 << 63, Result: []byte("x")}, {Key: key, Bytes: 1 << 63, Result: []byte("12345678")}}},
	} {
		b, err := proto.Marshal(d)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	memory := map[string]*tensor.Tensor{"t": mustTensor(f, 100)}
	f.Fuzz(func(t *testing.T, b []byte) {
		d := new(trystpb.TensorDelta)
		if proto.Unmarshal(b, d) != nil {
			return
		}
		base := newKnown(memory)
		base.digests["t"] = []byte("abcdefgh")
		pl := &pull{manifest: &Manifest{Entries: []TensorInfo{e}}, req: PullRequest{base: base}}
		w := pl.wayOf(0, d)
		if w == nil {
			return
		}
		sum := int64(0)
		for _, s := range w.steps {
			if s.bytes < 1 || s.method > delta.XOR {
				t.Fatalf("%+v", s)
			}
			if sum += s.bytes; sum > e.Bytes {
				t.Fatalf("%d bytes are taken for %d", sum, e.Bytes)
			}
		}
		if n := len(w.steps); n == 0 || n > maxDeltaSteps || string(w.steps[n-1].result) != "12345678" || string(d.GetBase()) != "abcdefgh" {
			t.Fatalf("%+v", w)
		}
	})
}

func mustTensor(f *testing.F, n int) *tensor.Tensor {
	f.Helper()
	x, err := tensor.FromBytes(tensor.Uint8, tensor.Vector(n), make([]byte, n))
	if err != nil {
		f.Fatal(err)
	}
	return x
}
