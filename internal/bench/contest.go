package bench

import (
	"context"
	"runtime"
	"sync"
	"time"
)

// side is one of the two sides of a contest. It runs for about d.
type side func(ctx context.Context, d time.Duration) (run, error)

// run is the result of one run of a side, or of all together.
type run struct {
	// score is the value that is compared; higher is better.
	score     float64
	count     int64
	time      time.Duration
	latencies histogram
	mallocs   uint64 // heap allocations of this process during the run, if counted
	counted   bool
}

func (r *run) add(other *run) {
	r.count += other.count
	r.time += other.time
	r.latencies.merge(&other.latencies)
}

// load returns a side in which inflight workers call op all the time. Its score is the
// number of operations in a second. op does n operations, of which batch are timed
// together; worker is from 0 to inflight-1.
func load(inflight, batch int, op func(ctx context.Context, worker, n int) error) side {
	latencies := make([]histogram, inflight) // one for each worker: no lock, no allocation
	return func(ctx context.Context, d time.Duration) (run, error) {
		clear(latencies)
		errs := make([]error, inflight)
		var wg sync.WaitGroup
		begin := time.Now()
		for worker := range inflight {
			wg.Go(func() {
				h := &latencies[worker]
				for start := begin; errs[worker] == nil; { // at least once
					errs[worker] = op(ctx, worker, batch)
					now := time.Now()
					h.add(now.Sub(start)/time.Duration(batch), int64(batch))
					if now.Sub(begin) >= d {
						return
					}
					start = now
				}
			})
		}
		wg.Wait()
		r := run{time: time.Since(begin)}
		for worker := range inflight {
			if errs[worker] != nil {
				return run{}, errs[worker]
			}
			r.latencies.merge(&latencies[worker])
		}
		r.count = r.latencies.count
		r.score = float64(r.count) / r.time.Seconds()
		return r, nil
	}
}

// contest has the parameters of a comparison.
type contest struct {
	pairs int
	time  time.Duration // of one run
	lower bool          // the ratio is of times, not of scores
}

// outcome is the result of a side in a contest.
type outcome struct {
	run
	ratio  spread  // to the baseline; of the baseline to itself
	allocs float64 // of an operation
}

func (c contest) ratio(a, b run) float64 {
	if c.lower {
		a, b = b, a
	}
	return a.score / b.score
}

// compare runs Tryst and the baseline in turn.
func (c contest) compare(ctx context.Context, ours, baseline side) (o, own outcome, err error) {
	for _, s := range []side{baseline, ours} {
		if _, err := s(ctx, c.time); err != nil {
			return o, own, err
		}
	}
	order := [3]side{baseline, baseline, ours}
	var pairs, again []float64
	for i := range c.pairs {
		var runs [3]run
		for j := range order {
			if i%2 == 1 {
				j = len(order) - 1 - j
			}
			if runs[j], err = order[j](ctx, c.time); err != nil {
				return o, own, err
			}
		}
		pairs = append(pairs, c.ratio(runs[2], runs[1])) // they ran one after the other
		again = append(again, c.ratio(runs[0], runs[1]))
		own.add(&runs[0])
		own.add(&runs[1])
		o.add(&runs[2])
	}
	o.ratio, own.ratio = spreadOf(pairs), spreadOf(again)
	if o.allocs, err = c.allocs(ctx, ours); err == nil {
		own.allocs, err = c.allocs(ctx, baseline)
	}
	return o, own, err
}

// measure runs a side without a baseline.
func (c contest) measure(ctx context.Context, s side) (o outcome, err error) {
	for i := -1; i < c.pairs; i++ { // from -1: the warm-up
		r, err := s(ctx, c.time)
		if err != nil {
			return o, err
		}
		if i >= 0 {
			o.add(&r)
		}
	}
	o.allocs, err = c.allocs(ctx, s)
	return o, err
}

// allocs counts the heap allocations of this process in one more run, and returns those
// of one operation.
func (c contest) allocs(ctx context.Context, s side) (float64, error) {
	r, err := counted(s)(ctx, c.time)
	if err != nil || r.count == 0 {
		return 0, err
	}
	return float64(r.mallocs) / float64(r.count), nil
}

// counted returns s with its allocations counted, unless s counts them itself. The time
// for counting does not belong to s.
func counted(s side) side {
	return func(ctx context.Context, d time.Duration) (run, error) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		r, err := s(ctx, d)
		if !r.counted {
			runtime.ReadMemStats(&after)
			r.mallocs, r.counted = after.Mallocs-before.Mallocs, true
		}
		return r, err
	}
}
