package ops

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// grain is how many elements one goroutine computes at least: fewer take less time than to start it.
const grain = 64 << 10

// parallel calls f for parts of [0, n), on several goroutines when there are many elements, and
// returns when all calls have returned. A panic of any of them is one of parallel, when all have ended.
func parallel(n int, f func(from, to int)) { parallelCost(n, 1, f) }

// parallelCost is parallel for elements that take as long as cost simple ones.
func parallelCost(n, cost int, f func(from, to int)) {
	parts := min(runtime.GOMAXPROCS(0), n/max(1, grain/max(1, cost)))
	if parts <= 1 {
		if n > 0 {
			f(0, n)
		}
		return
	}
	var wg sync.WaitGroup
	var failed atomic.Pointer[any] // the first panic of another goroutine
	for p := 1; p < parts; p++ {
		wg.Go(func() {
			defer func() {
				if v := recover(); v != nil {
					failed.CompareAndSwap(nil, &v)
				}
			}()
			f(partStart(p, parts, n), partStart(p+1, parts, n))
		})
	}
	// Also after a panic: the executor gives back the memory that the others write to.
	defer func() {
		wg.Wait()
		if v := failed.Load(); v != nil {
			panic(*v) //nolint:forbidigo // the executor recovers it, which it cannot on another goroutine
		}
	}()
	f(0, partStart(1, parts, n))
}

// partStart returns where part p of n elements begins.
func partStart(p, parts, n int) int { return n/parts*p + min(p, n%parts) }
