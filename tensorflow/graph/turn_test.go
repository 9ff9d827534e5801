package graph

import (
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tryst-rdma/tryst/tensor"
)

// TestALoopGivesItsPlaceToThoseThatWait has one place, which a long loop holds when another step comes.
func TestALoopGivesItsPlaceToThoseThatWait(t *testing.T) {
	for _, tc := range []struct {
		name   string
		kernel time.Duration // what the kernel of an iteration takes
		rounds int32         // of the loop
		before int32         // the iteration in which the other step runs at the latest
	}{
		{"cheap kernels", 0, 5000, 1000},
		{"kernels that are not cheap", time.Millisecond, 100, 20},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newFakeSet()
				w := NewWorkers(1)
				var round, other atomic.Int32
				s.ops["Count"] = fakeOp{def: s.ops["Identity"].def, kernel: kernel(func(c *Context) error {
					time.Sleep(tc.kernel)
					if round.Add(1) == 2 {
						w.run(func() { other.Store(round.Load()) })
					}
					c.Forward(0, 0)
					return nil
				})}
				lines := strings.Replace(loopGraph(int(tc.rounds), 1), "NextIteration(b)", "NextIteration(k)", 1) + "\nk = Count(b) T=int32" + fetch("r", "x")
				e, err := NewExecutor(importGraph(t, s, lines), s)
				if err != nil {
					t.Fatal(err)
				}
				m := newMailbox()
				if err := e.Run(t.Context(), &Step{Workers: w, Allocator: tensor.Heap{}, Collectives: m}); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				if got := other.Load(); got < 2 || got > tc.before {
					t.Errorf("the other step ran after iteration %d of %d, want at most %d", got, tc.rounds, tc.before)
				}
				if round.Load() != tc.rounds || scalar(t, m.values()["r"]) != tc.rounds {
					t.Errorf("the loop ran %d iterations, want %d", round.Load(), tc.rounds)
				}
			})
		})
	}
}
