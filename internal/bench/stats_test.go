package bench

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"
)

func TestSpread(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   spread
	}{
		{nil, spread{}},
		{[]float64{3}, spread{3, 3, 3}},
		{[]float64{2, 1}, spread{1.25, 1.5, 1.75}},
		{[]float64{5, 1, 4, 2, 3}, spread{2, 3, 4}},
		{[]float64{1, 2, 3, 4}, spread{1.75, 2.5, 3.25}}, // as numpy.quantile
	} {
		if got := spreadOf(c.values); got != c.want {
			t.Errorf("%v: %v, want %v", c.values, got, c.want)
		}
	}
}

func TestDeviation(t *testing.T) {
	for s, want := range map[spread]float64{
		{0.75, 1, 1.125}: 0.25,
		{1, 1.125, 1.5}:  0.5,
		{1, 1, 1}:        0,
	} {
		if got := s.deviation(); got != want {
			t.Errorf("%v: %v, want %v", s, got, want)
		}
	}
}

func TestHistogram(t *testing.T) {
	var h, other histogram
	if h.percentile(0.5) != 0 {
		t.Error("an empty histogram has a median")
	}
	for i := range 1000 {
		one := &h
		if i%2 == 1 {
			one = &other
		}
		one.add(time.Duration(i+1)*time.Millisecond, 2)
	}
	h.merge(&other)
	if h.count != 2000 {
		t.Errorf("it counts %d, want 2000", h.count)
	}
	for p, want := range map[float64]time.Duration{0: time.Millisecond, 0.5: 500 * time.Millisecond, 0.99: 990 * time.Millisecond, 1: time.Second} {
		if got := h.percentile(p); math.Abs(float64(got-want)) > 0.016*float64(want) {
			t.Errorf("percentile %v is %v, want %v within 1.6 %%", p, got, want)
		}
	}
}

// Parts follow one another without a gap, and each holds its own middle.
func TestHistogramParts(t *testing.T) {
	last := -1
	for d := range time.Duration(1 << 14) {
		p := part(d)
		if p != last && p != last+1 {
			t.Fatalf("after part %d comes %d at %d", last, p, d)
		}
		if part(middle(p)) != p {
			t.Fatalf("the middle of part %d is %v, in part %d", p, middle(p), part(middle(p)))
		}
		last = p
	}
	if p, most := part(math.MaxInt64), len(histogram{}.parts); p >= most {
		t.Errorf("the longest duration has part %d of %d", p, most)
	}
	if p := part(-time.Second); p != 0 {
		t.Errorf("a clock that went back has part %d", p)
	}
}

// fixed returns a side with given scores, and the order in which sides ran.
func fixed(name byte, order *[]byte, scores ...float64) side {
	return func(context.Context, time.Duration) (run, error) {
		*order = append(*order, name)
		s := scores[0]
		if len(scores) > 1 {
			scores = scores[1:]
		}
		return run{score: s, count: 1, time: time.Second}, nil
	}
}

func TestContestTakesTurns(t *testing.T) {
	var order []byte
	o, own, err := contest{pairs: 2}.compare(t.Context(), fixed('o', &order, 3), fixed('b', &order, 2))
	if err != nil {
		t.Fatal(err)
	}
	// The warm-up, a pair each way round, and the counting of allocations.
	if got, want := string(order), "bo"+"bbo"+"obb"+"ob"; got != want {
		t.Errorf("the sides ran in order %s, want %s", got, want)
	}
	if o.ratio.median != 1.5 || own.ratio.median != 1 || o.count != 2 || own.count != 4 || o.time != 2*time.Second {
		t.Errorf("ours %v of %d in %v, the baseline %v of %d", o.ratio, o.count, o.time, own.ratio, own.count)
	}
	o, _, err = contest{pairs: 2, lower: true}.compare(t.Context(), fixed('o', &order, 4), fixed('b', &order, 2))
	if err != nil || o.ratio.median != 0.5 {
		t.Errorf("twice as fast takes %v of the time, %v; want 0.5", o.ratio.median, err)
	}
}

func TestContestEndsWithAnError(t *testing.T) {
	broken := errors.New("broken")
	var order []byte
	good := fixed('g', &order, 1)
	bad := load(2, 1, func(_ context.Context, worker, _ int) error {
		if worker == 1 {
			return broken
		}
		return nil
	})
	if _, _, err := (contest{pairs: 1}).compare(t.Context(), bad, good); !errors.Is(err, broken) {
		t.Errorf("ours fails: %v", err)
	}
	if _, _, err := (contest{pairs: 1}).compare(t.Context(), good, bad); !errors.Is(err, broken) {
		t.Errorf("the baseline fails: %v", err)
	}
	if _, err := (contest{pairs: 1}).measure(t.Context(), bad); !errors.Is(err, broken) {
		t.Errorf("without a baseline: %v", err)
	}
}

func TestLoadCounts(t *testing.T) {
	workers := make([]int, 3)
	r, err := load(3, 10, func(_ context.Context, worker, n int) error {
		workers[worker] += n
		return nil
	})(t.Context(), time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	var sum int
	for _, n := range workers {
		if n == 0 {
			t.Errorf("the workers did %d; one did nothing", workers)
		}
		sum += n
	}
	if r.count != int64(sum) || r.latencies.count != r.count || r.time < time.Millisecond || r.score != float64(r.count)/r.time.Seconds() {
		t.Errorf("count %d of %d, %d timed, score %v in %v", r.count, sum, r.latencies.count, r.score, r.time)
	}
}

func TestAllocs(t *testing.T) {
	var sink []*[64]byte
	n, err := contest{time: 5 * time.Millisecond}.allocs(t.Context(), load(1, 1000, func(_ context.Context, _, n int) error {
		sink = make([]*[64]byte, n)
		for i := range sink {
			sink[i] = new([64]byte)
		}
		return nil
	}))
	if err != nil || n < 1 || n > 1.5 {
		t.Errorf("%v allocations of an operation, %v; want 1 and little", n, err)
	}
}
