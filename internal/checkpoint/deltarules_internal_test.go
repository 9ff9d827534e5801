package checkpoint

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/internal/delta"
	trystpb "github.com/tryst-rdma/tryst/internal/proto/tryst"
	"github.com/tryst-rdma/tryst/tensor"
)

// Each test here is of one rule of deltas that others would not miss: bytes stay right without it, since digests are checked.

func TestDeltasLeadBetweenTensorsOfOneLayout(t *testing.T) {
	info := func(d tensor.DType, n int64, dims ...int) *TensorInfo {
		return &TensorInfo{DType: d, Shape: tensor.Vector(dims[0]), Bytes: n}
	}
	a := info(tensor.Float16, 200, 100)
	for name, tt := range map[string]struct {
		b    *TensorInfo
		want bool
	}{
		"the same":      {info(tensor.Float16, 200, 100), true},
		"another type":  {info(tensor.BFloat16, 200, 100), false},
		"another shape": {info(tensor.Float16, 200, 200), false},
		"other bytes":   {info(tensor.Float16, 201, 100), false},
	} {
		if got := sameLayout(a, tt.b); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	if s := info(tensor.String, 200, 100); sameLayout(s, s) {
		t.Error("strings have deltas")
	}
}

// stoppable is a making between two versions that notes whether it was stopped.
func stoppable(from, to uint64) (m *making, was *bool) {
	was = new(bool)
	return &making{
		from: &publication{life: life{number: from}}, to: &publication{life: life{number: to}}, stop: func() { *was = true },
		byName: map[string]*made{"t": {delta: delta.Delta{Content: make([]byte, 50), Summary: delta.Summary{Method: delta.Sparse, Length: 10_000, Bytes: 50}}}},
	}, was
}

func TestMakingIsStoppedWhenItIsOver(t *testing.T) {
	for name, end := range map[string]func(d *deltas, m *making){
		"the next version": func(d *deltas, _ *making) { d.keep(100_000) },
		"a drop":           func(d *deltas, _ *making) { d.drop() },
		"the end":          func(d *deltas, m *making) { d.endedLocked(m.to) },
		"all forgotten":    func(d *deltas, _ *making) { d.clear() },
	} {
		m, was := stoppable(1, 2)
		d := deltas{fresh: m, bytes: 100_000}
		if d.endedLocked(m.from); *was || d.fresh == nil {
			t.Error("it ends with the version before")
		}
		if end(&d, m); !*was || d.fresh != nil {
			t.Errorf("%s: it was stopped: %v; it is there: %v", name, *was, d.fresh != nil)
		}
	}
}

// A dropped version leaves no deltas, and what leads to the version before it stays, unless that has ended.
func TestDroppedVersionLeavesNoDeltas(t *testing.T) {
	m, _ := stoppable(1, 2)
	d := deltas{fresh: m}
	if from := d.drop(); from != m.from {
		t.Errorf("the next deltas begin at %v", from)
	}
	m.from.ended, d.fresh = true, m
	if from := d.drop(); from != nil {
		t.Error("the next deltas begin at a version that has ended")
	}
}

// The share of the kept deltas is that of the publication as it is now.
func TestChainIsForThePublicationAsItIs(t *testing.T) {
	var d deltas
	for i, bytes := range []int64{100_000, 100_000, 50_000} {
		m, _ := stoppable(uint64(i), uint64(i+1)) //nolint:gosec // small
		d.fresh = m
		d.keep(bytes)
	}
	if _, ok := d.chain.Path(0, 3); ok {
		t.Error("deltas of a larger publication are kept")
	}
	if _, ok := d.chain.Path(2, 3); !ok {
		t.Error("the last deltas are not kept")
	}
}

func TestStepHasOnlyWhatWasMade(t *testing.T) {
	m, _ := stoppable(1, 2)
	m.byName["whole"] = &made{}
	if s := m.step(); len(s.Deltas) != 1 || s.From != 1 || s.To != 2 {
		t.Errorf("%+v", s)
	}
}

// What older deltas take is not there for newer ones, which push them out.
func TestOlderDeltasMakeRoom(t *testing.T) {
	tr := newTrainer(t, 1, 1<<20, 0)
	l, share := tr.line(), int64(1<<20/deltaShare)
	for wanted, kept := range map[int64]int{1000: 3, share - 75_000: 2, share: 0} {
		chain := delta.NewChain(1 << 20)
		for i := range uint64(3) {
			chain.Add(delta.Step{From: i, To: i + 1, Deltas: map[string]delta.Delta{"t0": {Content: make([]byte, 30_000), Summary: delta.Summary{Method: delta.Sparse, Length: 1 << 20}}}})
		}
		m := &making{to: tr.c.publications["w"], tensors: []*made{{estimate: delta.Summary{Method: delta.Sparse, Bytes: wanted}}, {estimate: delta.Summary{Bytes: 1 << 30}}}}
		tr.c.mu.Lock()
		l.deltas.chain, l.deltas.fresh = chain, m
		tr.c.mu.Unlock()
		room := tr.c.roomForDeltas(l, m)
		if _, ok := chain.Path(uint64(3-kept), 3); !ok || room != share-chain.Bytes() || kept < 3 && room < wanted { //nolint:gosec // small
			t.Errorf("for %d bytes there is room for %d of %d; older ones take %d", wanted, room, share, chain.Bytes())
		}
		if _, ok := chain.Path(uint64(max(0, 2-kept)), 3); ok && kept < 3 { //nolint:gosec // small
			t.Errorf("for %d bytes more than %d older versions stay", wanted, kept)
		}
	}
	tr.c.mu.Lock()
	l.deltas.fresh = nil
	tr.c.mu.Unlock()
}

// Where room is short, those deltas are given up that save least.
func TestDeltasThatSaveLeastAreGivenUp(t *testing.T) {
	m := new(making)
	for _, bytes := range []int64{400, 100, 300} {
		m.tensors = append(m.tensors, &made{estimate: delta.Summary{Method: delta.Sparse, Length: 1000, Bytes: bytes}})
	}
	m.fit(450)
	for i, want := range []delta.Method{delta.Whole, delta.Sparse, delta.Sparse} {
		if got := m.tensors[i].estimate.Method; got != want {
			t.Errorf("tensor %d: %v, want %v", i, got, want)
		}
	}
}

// countdown is a context that ends when it has been asked so many times.
type countdown struct {
	context.Context
	left int
}

func (c *countdown) Err() error {
	if c.left--; c.left < 0 {
		return context.DeadlineExceeded
	}
	return nil
}

// making returns a making from the current version to one in which one of n elements has changed.
func (tr *trainer) making(n int) *making {
	tr.t.Helper()
	before := tr.c.publications["w"]
	tr.taken(1e12) // so fast that the catalog makes none
	l := tr.line()
	l.deltas.takers = takers{}
	tr.step(n)
	tr.c.mu.Lock()
	for _, e := range before.entries {
		held := e.held.Retain()
		tr.t.Cleanup(held.Release)
	}
	tr.c.mu.Unlock()
	tr.update()
	return newMaking(before, tr.c.publications["w"])
}

// A tensor that is being encoded when the time is over is not made.
func TestEncodingStopsWhenItIsLate(t *testing.T) {
	for left, want := range map[int]delta.Method{2: delta.Whole, 1 << 20: delta.Sparse} { // asked before the look, and before the encoding
		tr := newTrainer(t, 1, 4<<20, 0)
		m := tr.making(100)
		tr.c.makeDeltas(&countdown{t.Context(), left}, tr.line(), m, 0)
		if got := m.tensors[0].delta.Summary.Method; got != want {
			t.Errorf("with time for %d steps it is %v, want %v", left, got, want)
		}
	}
}

// Deltas that become longer than their estimates stay within the budget together.
func TestDeltasBeyondTheirEstimatesStayWithinTheBudget(t *testing.T) {
	const tensors, bytes = 16, 64 << 10
	tr := newTrainer(t, tensors, bytes, 0)
	m := tr.making(1)
	e, err := delta.NewEncoder()
	if err != nil {
		t.Fatal(err)
	}
	defer m.release()
	close(m.looked)
	for _, one := range m.tensors {
		one.estimate = delta.Summary{Method: delta.Sparse, Length: bytes, Bytes: 1}
	}
	budget := int64(tensors * bytes / 20) // for some of them
	if left := budget - tr.c.encode(t.Context(), e, m, budget, 0); left < 0 || left > budget/2 {
		t.Errorf("%d of %d bytes are left", left, budget)
	}
	sum := int64(0)
	for _, one := range m.tensors {
		sum += int64(len(one.delta.Content))
	}
	if sum > budget {
		t.Errorf("deltas of %d bytes, more than %d", sum, budget)
	}
}

// The memory in which deltas are made is kept for the next one if it is small.
func TestScratchOfALongDeltaIsGivenBack(t *testing.T) {
	for n, keeps := range map[int]bool{1000: true, 1: false} {
		tr := newTrainer(t, 1, 8<<20, 0)
		m := tr.making(n)
		e, err := delta.NewEncoder()
		if err != nil {
			t.Fatal(err)
		}
		scratch, made := tr.c.makeDelta(e, m.tensors[0], nil, 0)
		if made == 0 || (scratch != nil) != keeps {
			t.Errorf("one of %d elements changed: after a delta of %d bytes %d are kept", n, made, cap(scratch))
		}
		m.release()
	}
}

func TestMakingHasItsBoundOfTime(t *testing.T) {
	tr := newTrainer(t, 1, 1<<20, 0)
	tr.step(100)
	before := time.Now()
	tr.update()
	least, until, most := before.Add(deltasWithin), tr.line().deltas.fresh.until, time.Now().Add(deltasWithin)
	if until.Before(least) || until.After(most) {
		t.Errorf("it has until %v, want %v to %v", until, least, most)
	}
	tr.made()
}

// A request for a delta gets the one between its two versions of its epoch, or none.
func TestDeltaOfAKeyIsThatOfItsVersions(t *testing.T) {
	tr := newTrainer(t, 1, 64<<10, 0)
	first := tr.trained(3)
	epoch := tr.line().epoch
	for _, tt := range []struct {
		epoch, from, to uint64
		want            bool
	}{
		{epoch, first, first + 1, true}, {epoch, first + 1, first + 2, true}, {epoch, first + 2, first + 3, true},
		{epoch, first, first + 3, false}, {epoch, first + 1, first + 3, false}, {epoch, first, first + 2, false}, {epoch, first + 3, first + 3, false},
		{epoch + 1, first, first + 1, false}, {epoch + 1, first + 2, first + 3, false}, {epoch, first + 2, first + 4, false},
	} {
		if _, ok := tr.c.deltaOf(&deltaKey{publication: "w", tensor: "t0", epoch: tt.epoch, from: tt.from, to: tt.to}); ok != tt.want {
			t.Errorf("from %d to %d, epoch %v: %v", tt.from-first, tt.to-first, tt.epoch == epoch, ok)
		}
	}
}

// Offers are for the version and the epoch that the puller has, and lead forward.
func TestOffersAreForTheVersionThatThePullerHas(t *testing.T) {
	tr := newTrainer(t, 1, 64<<10, 0)
	first := tr.trained(3)
	p := tr.c.publications["w"]
	old := &publication{life: life{number: p.number - 1, epoch: p.epoch + 1, inMemory: true}, manifest: p.manifest}
	for name, tt := range map[string]struct {
		p             *publication
		epoch, number uint64
		want          bool
	}{
		"the first": {p, p.epoch, first, true}, "the last but one": {p, p.epoch, p.number - 1, true},
		"the same": {p, p.epoch, p.number, false}, "a later one": {p, p.epoch, p.number + 1, false}, "none": {p, p.epoch, 0, false},
		"another epoch": {p, p.epoch + 1, first, false}, "a version of another epoch": {old, old.epoch, first, false},
	} {
		if got := tr.c.offers(tt.p, p.entries, tr.c.o.Device.Task, &trystpb.DeltaRequest{Epoch: tt.epoch, Number: tt.number}); got.any() != tt.want {
			t.Errorf("%s: offers %v", name, got.any())
		}
	}
	if tr.c.offers(p, p.entries, tr.c.o.Device.Task, nil).any() {
		t.Error("offers without a request")
	}
	d := deltas{chain: tr.line().deltas.chain}
	for _, from := range []uint64{first, p.number - 1} {
		if path, _, ok := d.path(from, &publication{life: life{number: first}}); ok {
			t.Errorf("a path to the version itself, or back: %v", path)
		}
	}
	most := tr.c.offers(p, p.entries, tr.c.o.Device.Task, &trystpb.DeltaRequest{Epoch: p.epoch, Number: first, RoundTrip: 1<<64 - 1})
	if trip := most.measured.trip; trip != tripMost {
		t.Errorf("a round trip of %v", trip)
	}
}

// What a server offers is taken if it leads from what is here to what is wanted, and is bounded.
func TestOfferIsTakenOrNot(t *testing.T) {
	const base, want = "abcdefgh", "12345678"
	key := func(n int) string {
		return "/job:worker/replica:0/task:0/device:CPU:0;0000000000000001;/job:client/replica:0/task:1/device:CPU:0;publication:w@<1.2.3/" + strings.Repeat("t", n) + ";0:0"
	}
	steps := func(n int, bytes uint64, last string) (all []*trystpb.DeltaStep) {
		for i := range n {
			all = append(all, &trystpb.DeltaStep{Key: key(1), Bytes: bytes, Result: []byte(fmt.Sprint(i)), Method: 2})
		}
		all[n-1].Result = []byte(last)
		return all
	}
	with := func(change func(s *trystpb.DeltaStep)) []*trystpb.DeltaStep {
		s := steps(2, 10, want)
		change(s[0])
		return s
	}
	for name, tt := range map[string]struct {
		d    *trystpb.TensorDelta
		want bool
	}{
		"one step":          {&trystpb.TensorDelta{Base: []byte(base), Steps: steps(1, 100, want)}, true},
		"as many as may be": {&trystpb.TensorDelta{Base: []byte(base), Steps: steps(maxDeltaSteps, 1, want)}, true},
		"another base":      {&trystpb.TensorDelta{Base: []byte(want), Steps: steps(1, 100, want)}, false},
		"another result":    {&trystpb.TensorDelta{Base: []byte(base), Steps: steps(1, 100, base)}, false},
		"no steps":          {&trystpb.TensorDelta{Base: []byte(base)}, false},
		"too many":          {&trystpb.TensorDelta{Base: []byte(base), Steps: steps(maxDeltaSteps+1, 1, want)}, false},
		"too long":          {&trystpb.TensorDelta{Base: []byte(base), Steps: steps(1, 101, want)}, false},
		"too long together": {&trystpb.TensorDelta{Base: []byte(base), Steps: steps(3, 34, want)}, false},
		"empty":             {&trystpb.TensorDelta{Base: []byte(base), Steps: with(func(s *trystpb.DeltaStep) { s.Bytes = 0 })}, false},
		"no key":            {&trystpb.TensorDelta{Base: []byte(base), Steps: with(func(s *trystpb.DeltaStep) { s.Key = "x" })}, false},
		"a long key":        {&trystpb.TensorDelta{Base: []byte(base), Steps: with(func(s *trystpb.DeltaStep) { s.Key = key(1 << 16) })}, false},
		"a long digest":     {&trystpb.TensorDelta{Base: []byte(base), Steps: with(func(s *trystpb.DeltaStep) { s.Result = make([]byte, maxDeltaDigest+1) })}, false},
	} {
		x, err := tensor.FromBytes(tensor.Uint8, tensor.Vector(100), make([]byte, 100))
		if err != nil {
			t.Fatal(err)
		}
		k := newKnown(map[string]*tensor.Tensor{"t": x})
		k.digests["t"] = []byte(base)
		m := &Manifest{Entries: []TensorInfo{{Name: "t", DType: tensor.Uint8, Shape: tensor.Vector(100), Bytes: 100, Digest: []byte(want)}}}
		pl := &pull{manifest: m, req: PullRequest{base: k}}
		if got := pl.wayOf(0, tt.d); (got != nil) != tt.want {
			t.Errorf("%s: it is taken: %v", name, got != nil)
		}
	}
}

// Memory is a base if it has the layout of the tensor and came whole, and until it is written.
func TestKnownMemory(t *testing.T) {
	x, err := tensor.FromBytes(tensor.Float16, tensor.Vector(50), make([]byte, 100))
	if err != nil {
		t.Fatal(err)
	}
	digest, other := []byte("12345678"), []byte("abcdefgh")
	info := func(name string, d tensor.DType, n int, digest []byte) *TensorInfo {
		return &TensorInfo{Name: name, DType: d, Shape: tensor.Vector(n), Bytes: 100, Digest: digest}
	}
	e := info("t", tensor.Float16, 50, digest)
	k := newKnown(map[string]*tensor.Tensor{"t": x})
	if k.find(e) != nil || k.last().Number != 0 {
		t.Error("memory in which nothing came is a base")
	}
	k.came(e)
	k.came(info("u", tensor.Float16, 50, digest))
	k.whole(Publication{Number: 3})
	for name, tt := range map[string]struct {
		e         *TensorInfo
		base, has bool
	}{
		"the same": {e, true, true}, "another content": {info("t", tensor.Float16, 50, other), true, false},
		"another type": {info("t", tensor.BFloat16, 50, digest), false, false}, "another shape": {info("t", tensor.Float16, 51, digest), false, false},
		"no memory": {info("u", tensor.Float16, 50, digest), false, false},
	} {
		if w := k.find(tt.e); (w != nil) != tt.base || (has(k, tt.e) != nil) != tt.has {
			t.Errorf("%s: it is a base: %v, and is here: %v", name, w != nil, has(k, tt.e) != nil)
		}
	}
	if len(k.digests) != 1 || k.last().Number != 3 {
		t.Errorf("%d digests, version %d", len(k.digests), k.last().Number)
	}
	if k.forget("t"); k.find(e) != nil {
		t.Error("memory that is written is a base")
	}
}

// Files are a base if they have the layout of the tensor, and only those of the last version.
func TestKnownFiles(t *testing.T) {
	digest := sha256.Sum256(nil)
	info := func(name string, d tensor.DType) TensorInfo {
		return TensorInfo{Name: name, DType: d, Shape: tensor.Vector(50), Bytes: 100, Digest: digest[:8]}
	}
	s := new(shelf)
	s.tensors = map[string]shelfSpot{"old": {info: new(TensorInfo)}}
	m := &Manifest{Publication: Publication{Number: 3}, Entries: []TensorInfo{info("t", tensor.Float16)}}
	s.fill(m, nil)
	if s.last().Number != 3 || len(s.tensors) != 0 {
		t.Errorf("version %d with %d tensors", s.last().Number, len(s.tensors))
	}
	s.tensors["t"] = shelfSpot{info: &m.Entries[0]}
	same, other := info("t", tensor.Float16), info("t", tensor.BFloat16)
	same.Digest = []byte("another")
	if w := s.find(&same); w == nil || string(w.digest) != string(digest[:8]) {
		t.Errorf("found: %+v", w)
	}
	if s.find(&other) != nil {
		t.Error("another layout is a base")
	}
	if s.forget("t"); s.find(&same) != nil {
		t.Error("what has another content is a base")
	}
}

// A tensor is offered by deltas that all are there, are of one length, and gain together.
func TestWayToATensor(t *testing.T) {
	tr := newTrainer(t, 1, 1000, 0)
	sparse := func(length, bytes int64) delta.Delta {
		return delta.Delta{Summary: delta.Summary{Method: delta.Sparse, Length: length, Bytes: bytes}}
	}
	path := func(deltas ...delta.Delta) (p []delta.Step) {
		for _, d := range deltas {
			p = append(p, delta.Step{Deltas: map[string]delta.Delta{"t": d}})
		}
		return p
	}
	last := func(name string, d delta.Delta) *making {
		return &making{to: new(publication), byName: map[string]*made{name: {delta: d}}}
	}
	o := &offerCursor{catalog: tr.c} // without a rate: bytes count
	for name, tt := range map[string]struct {
		path []delta.Step
		m    *making
		want int
	}{
		"one that is kept":         {path(sparse(10_000, 100)), nil, 1},
		"two that are kept":        {path(sparse(10_000, 100), sparse(10_000, 100)), nil, 2},
		"kept ones that gain not":  {path(sparse(10_000, 5000), sparse(10_000, 4500)), nil, 0},
		"kept, and the last":       {path(sparse(10_000, 100)), last("t", sparse(10_000, 100)), 2},
		"the last":                 {nil, last("t", sparse(10_000, 100)), 1},
		"a last that gains not":    {nil, last("t", sparse(10_000, 10_000)), 0},
		"a last that is not there": {path(sparse(10_000, 100)), last("t", delta.Delta{}), 0},
		"a last of another tensor": {path(sparse(10_000, 100)), last("u", sparse(10_000, 100)), 0},
		"a last of another length": {path(sparse(9000, 100)), last("t", sparse(10_000, 100)), 0},
		"a gap in what is kept":    {append(path(sparse(10_000, 100)), delta.Step{}), last("t", sparse(10_000, 100)), 0},
		"the last one is too much": {path(sparse(10_000, 5000)), last("t", sparse(10_000, 4500)), 0},
		"short, with their keys":   {path(sparse(1000, 100), sparse(1000, 100)), last("t", sparse(1000, 100)), 0}, // 600 bytes each
	} {
		if steps, ok := o.wayTo(tt.path, tt.m, "t"); ok != (tt.want > 0) || ok && len(steps) != tt.want {
			t.Errorf("%s: %d deltas, %v", name, len(steps), ok)
		}
	}
}

// A making is complete when the last tensor is.
func TestMakingIsCompleteWithItsLastTensor(t *testing.T) {
	m := new(making)
	if !m.complete() {
		t.Error("one without tensors is not")
	}
	m.tensors = []*made{{done: make(chan struct{})}, {done: make(chan struct{})}}
	close(m.tensors[0].done)
	if m.complete() {
		t.Error("it is complete with the first one")
	}
	close(m.tensors[1].done)
	if !m.complete() {
		t.Error("it is not complete")
	}
}

// knownPull is a pull of a tensor t, of which another content is known.
func knownPull(t *testing.T, content, want []byte) (pl *pull, k *known, digest func(b []byte) []byte) {
	t.Helper()
	newHash, err := newHash(XXH64)
	if err != nil {
		t.Fatal(err)
	}
	digest = func(b []byte) []byte {
		h := newHash()
		_, _ = h.Write(b)
		return h.Sum(nil)
	}
	x, err := tensor.FromBytes(tensor.Uint8, tensor.Vector(len(content)), content)
	if err != nil {
		t.Fatal(err)
	}
	k = newKnown(map[string]*tensor.Tensor{"t": x})
	k.digests["t"] = digest(content)
	e := TensorInfo{Name: "t", DType: tensor.Uint8, Shape: tensor.Vector(len(content)), Bytes: int64(len(content)), Digest: digest(want)}
	return &pull{manifest: &Manifest{Algorithm: XXH64, Entries: []TensorInfo{e}}, req: PullRequest{base: k, patches: true}}, k, digest
}

// A tensor that is not what it should be is known no more, and one that could not be made is requested.
func TestAWrongBaseIsForgotten(t *testing.T) {
	content := []byte("content")
	pl, k, _ := knownPull(t, content, content)
	here, others := pl.unchanged([]int{0})
	if len(here) != 1 || len(others) != 0 {
		t.Fatalf("%d are here, %d are not", len(here), len(others))
	}
	content[0]++ // which nobody may do
	if pl.make(here[0], make([]byte, len(content)), nil) || k.digests["t"] != nil {
		t.Errorf("it is made, or still known: %x", k.digests["t"])
	}
	content[0]--
	pl, _, _ = knownPull(t, content, content)
	pl.refuse(0)
	pl.refuse(0)
	if here, others := pl.unchanged([]int{0}); len(here) != 0 || len(others) != 1 || pl.patches.stats.Failed != 1 {
		t.Errorf("after it could not be made %d are here, %d are not, %d have failed", len(here), len(others), pl.patches.stats.Failed)
	}
}

// A tensor by a path is made of one delta after the other, and counts for what most of a delta is.
func TestTensorByAPath(t *testing.T) {
	versions := [][]byte{make([]byte, 64<<10), make([]byte, 64<<10), make([]byte, 64<<10)}
	versions[1][100], versions[2][100], versions[2][2000] = 1, 1, 2
	pl, _, digest := knownPull(t, versions[0], versions[2])
	e, err := delta.NewEncoder()
	if err != nil {
		t.Fatal(err)
	}
	w := pl.req.base.find(&pl.manifest.Entries[0])
	var deltas []*tensor.Tensor
	for i, method := range []delta.Method{delta.XOR, delta.Sparse} { // as the server says
		b, _ := e.Encode(nil, delta.Pair{Old: versions[i], New: versions[i+1], Base: digest(versions[i]), Result: digest(versions[i+1]), Unit: 1}, 0)
		x, err := tensor.FromBytes(tensor.Uint8, tensor.Vector(len(b)), b)
		if err != nil {
			t.Fatal(err)
		}
		deltas = append(deltas, x)
		w.steps = append(w.steps, deltaPart{bytes: int64(len(b)), result: digest(versions[i+1]), method: method})
	}
	dst := make([]byte, 64<<10)
	if !pl.make(part{way: w}, dst, deltas) || string(dst) != string(versions[2]) {
		t.Error("it is not made, or wrong")
	}
	if d := pl.deltas(1, 64<<10); d.XOR.Tensors != 1 || d.Sparse.Tensors != 0 || d.Whole.Tensors != 0 || d.Received() != w.steps[0].bytes+w.steps[1].bytes {
		t.Errorf("%+v", d)
	}
	if len(pl.patches.appliers) != 1 {
		t.Errorf("%d appliers are free", len(pl.patches.appliers))
	}
}

// A pull whose sessions break while it takes deltas takes none any more.
func TestSessionsThatBreakEndDeltas(t *testing.T) {
	pl, _, _ := knownPull(t, []byte("x"), []byte("y"))
	for i := range brokenDeltas {
		pl.brokeWith(nil)
		pl.brokeWith(&session{})
		if pl.deltaRequest() == nil {
			t.Fatalf("it takes none after %d", i)
		}
		pl.brokeWith(&session{ways: map[int]*way{0: {}}})
	}
	if pl.deltaRequest() != nil {
		t.Error("it takes deltas")
	}
	pl, _, _ = knownPull(t, []byte("x"), []byte("y"))
	if pl.req.patches = false; pl.deltaRequest() != nil {
		t.Error("a pull that takes none requests deltas")
	}
}
