package transporttest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/tensortest"
)

// contentCases: tensors of every type and content arrive unchanged.
func contentCases() []testCase {
	cases := []testCase{
		{name: "Dead", run: dead},
		{name: "DeadKeepsTheOrder", run: deadKeepsOrder},
		{name: "NoElements", run: noElements},
		{name: "Dimensions", run: dimensions},
		{name: "Strings", run: stringContents},
		{name: "LargeString", run: largeString, size: 40 << 20},
		{name: "ManyKeysOfOneName", run: frameIters},
	}
	for _, d := range tensortest.AllDTypes() {
		cases = append(cases, testCase{name: "DType/" + d.String(), run: func(w *world) { dtype(w, d) }})
	}
	return cases
}

// dead: a dead value arrives as one, whether it was sent with a tensor or without.
func dead(w *world) {
	from, to := w.pair()
	for i, x := range []*tensor.Tensor{nil, w.number(3)} {
		k := w.key(from, to, fmt.Sprint("v", i))
		if err := from.in(1).Send(k, rendezvous.Args{}, x, true); err != nil {
			w.Fatal(err)
		}
		if x != nil {
			x.Release()
		}
		to.recv(1, k).isDead()
	}
}

func (r *receive) isDead() {
	r.w.Helper()
	o := r.wait()
	if o.err != nil {
		r.w.Fatal(o.err)
	}
	defer o.release()
	if !o.value.Dead {
		r.w.Fatalf("receive of %s: the value is not dead", r.key.Edge())
	}
}

func deadKeepsOrder(w *world) {
	from, to := w.pair()
	k := w.key(from, to, "v")
	from.sendNumber(1, k, 1)
	if err := from.in(1).Send(k, rendezvous.Args{}, nil, true); err != nil {
		w.Fatal(err)
	}
	from.sendNumber(1, k, 2)
	to.recv(1, k).mustBeNumber(1)
	to.recv(1, k).isDead()
	to.recv(1, k).mustBeNumber(2)
}

// arrives sends x and fails the case unless an equal tensor arrives. It takes over the
// caller's reference.
func (w *world) arrives(from, to *node, name string, x *tensor.Tensor) {
	w.Helper()
	want, err := x.Clone(tensor.Heap{})
	if err != nil {
		w.Fatal(err)
	}
	defer want.Release()
	k := w.key(from, to, name)
	from.send(1, k, x)
	to.recv(1, k).mustEqual(want)
}

func (w *world) random(rng *rand.Rand, d tensor.DType, dims ...int64) *tensor.Tensor {
	w.Helper()
	return tensortest.Random(rng, d, tensortest.Shape(w, dims...), w.source)
}

func noElements(w *world) {
	from, to := w.pair()
	rng := rand.New(rand.NewPCG(4, 0))
	for _, d := range []tensor.DType{tensor.Float32, tensor.Uint8, tensor.Complex128, tensor.String} {
		for _, dims := range [][]int64{{0}, {0, 5}, {2, 0, 3}, {1 << 40, 0}, {0, 0, 0, 0}} {
			w.arrives(from, to, fmt.Sprint(d, dims), w.random(rng, d, dims...))
		}
	}
}

// dimensions: shapes from a scalar to the maximum rank.
func dimensions(w *world) {
	from, to := w.pair()
	rng := rand.New(rand.NewPCG(5, 0))
	for _, rank := range []int{0, 1, 2, 7, 8, 253, tensor.MaxDims} {
		dims := make([]int64, rank)
		for i := range dims {
			dims[i] = 1
		}
		if rank > 0 {
			dims[rank/2] = 3
			dims[rank-1] = 5
		}
		w.arrives(from, to, fmt.Sprint("rank", rank), w.random(rng, tensor.Int32, dims...))
	}
}

// dtype: every type, with sizes in bytes that are multiples of no alignment.
func dtype(w *world, d tensor.DType) {
	from, to := w.pair()
	rng := rand.New(rand.NewPCG(6, uint64(d)))
	for _, dims := range [][]int64{{}, {0}, {1}, {7}, {3, 5, 7}, {1031}} {
		w.arrives(from, to, fmt.Sprint(dims), w.random(rng, d, dims...))
	}
}

func stringContents(w *world) {
	from, to := w.pair()
	many := make([]string, 20_000)
	for i := range many {
		many[i] = strings.Repeat("x", i%7)
	}
	for name, elems := range map[string][]string{
		"none":     {},
		"empty":    {""},
		"empties":  {"", "", ""},
		"mixed":    {"a", "", "\x00\xff not UTF-8 \xfe", strings.Repeat("ü", 300)},
		"over64K":  {strings.Repeat("s", 1<<16), strings.Repeat("t", 1<<16+1)},
		"megabyte": {strings.Repeat("m", 1<<20), "after"},
		"many":     many,
	} {
		x, err := tensor.FromStrings(tensor.Vector(len(elems)), elems)
		if err != nil {
			w.Fatal(err)
		}
		w.arrives(from, to, name, x)
	}
}

func largeString(w *world) {
	from, to := w.pair()
	x, err := tensor.FromStrings(tensor.Vector(2), []string{strings.Repeat("l", 40<<20), "after"})
	if err != nil {
		w.Fatal(err)
	}
	w.arrives(from, to, "v", x)
}

// frameIters: keys that differ only in the frame and iteration of a loop.
func frameIters(w *world) {
	from, to := w.pair()
	var keys []rendezvous.Key
	for i := range 10 {
		k, err := rendezvous.NewKey(from.device, from.incarnation, to.device, "v", rendezvous.FrameIter{Frame: uint64(i / 5), Iter: int64(i % 5)})
		if err != nil {
			w.Fatal(err)
		}
		keys = append(keys, k)
		from.sendNumber(1, k, i)
	}
	for i, k := range slices.Backward(keys) {
		to.recv(1, k).mustBeNumber(i)
	}
}
