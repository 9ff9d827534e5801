//go:build interop

package tensorflow_test

import (
	"math"
	"testing"

	"github.com/tryst-rdma/tryst/status"
)

// TestTutorials: programs of the kinds that TensorFlow 1's guides for parameter servers have train on a Tryst ps, of
// which a task is killed and started again in the middle. They go on by themselves from the last checkpoint. One worker
// whose input does not depend on time gets the losses that it has with tasks of TensorFlow, of which none was killed.
func TestTutorials(t *testing.T) {
	t.Parallel()
	const steps = 90
	tutorials := []struct {
		kind           string
		workers, tasks int
		pausing        int // workers that wait for the kill; those that take each other's steps in turn cannot all do that
		exact          bool
	}{
		{"asynchronous", 2, 1, 2, false},
		{"synchronous", 2, 1, 1, false},
		{"queues", 1, 1, 1, false},
		{"embedding", 1, 2, 1, true},
		{"recurrent", 1, 1, 1, true},
	}
	sets := []string{"go", "process"}
	c := newCluster(t, map[string]int{"worker": 2, "tf": 2, "go": 2, "process": 2})
	checkpoints := t.TempDir()
	restart := map[string]func(){"tf": func() {}}
	for _, set := range sets {
		c.startTrystProcess(t, serverTask{Job: set, Task: 1, Kernels: set, Files: checkpoints})
		restart[set] = c.startTrystProcess(t, serverTask{Job: set, Kernels: set, Files: checkpoints}).restart
	}
	var workers []*python
	for i := range 2 {
		c.beginTask(t, "tf", i)
		workers = append(workers, c.beginTask(t, "worker", i))
	}
	for _, w := range workers {
		w.ready()
	}
	for _, tt := range tutorials {
		// train returns the losses of the first worker, which is the chief. killed is called in the middle.
		train := func(t *testing.T, ps, variables string, killed func()) []any {
			t.Helper()
			a := args{
				"ps": "/job:" + ps, "kind": tt.kind, "variables": variables, "directory": newDirectory(t, checkpoints),
				"steps": steps, "tasks": tt.tasks, "pause": steps / 2 / tt.workers,
			}
			chief := workers[0].in(t)
			chief.begin("tutorial", a)
			chief.event("session")
			for i, w := range workers[1:tt.workers] {
				if i+1 == tt.pausing {
					a["pause"] = nil
				}
				w.in(t).begin("tutorial", a)
			}
			chief.reply("")
			for _, w := range workers[:tt.pausing] {
				w.in(t).event("half-way")
			}
			killed()
			for _, w := range workers[:tt.pausing] {
				w.in(t).reply("")
			}
			var losses []any
			var results []result
			for i, w := range workers[:tt.workers] {
				w, r := w.in(t), w.in(t).result()
				if r.Code == status.Cancelled {
					// TensorFlow may report the cancel of a receive before the restart that caused it, and its
					// session recovers from a restart only. Who runs the job then begins the worker again.
					t.Logf("worker %d begins again after %v %s", i, r.Code, r.Message)
					a["pause"] = nil
					w.begin("tutorial", a)
					if i == 0 {
						w.event("session")
						w.reply("")
					}
					r = w.result()
				}
				results = append(results, r)
			}
			for i, r := range results {
				v, _ := r.Value.(map[string]any)
				step, _ := v["step"].(float64)
				if r.Code != status.OK || step < steps {
					t.Fatalf("worker %d ended with %v %s at step %v, want %d", i, r.Code, r.Message, step, steps)
				}
				if i == 0 {
					losses, _ = v["losses"].([]any)
				}
			}
			return losses
		}
		for _, variables := range []string{"ref", "resource"} {
			var want []any
			for _, ps := range append([]string{"tf"}, sets...) {
				t.Run(tt.kind+" "+variables+" "+ps, func(t *testing.T) {
					got := train(t, ps, variables, restart[ps])
					const last = 15
					if want == nil {
						want = got
					}
					if tt.exact {
						wantNear(t, "", got[len(got)-last:], want[len(want)-last:], 1e-5)
					}
					// The run of TensorFlow has the first loss. A worker that began again has losses since the checkpoint only.
					begin, _ := want[0].(float64)
					end, _ := got[len(got)-1].(float64)
					if begin == 0 || end > 0.9*begin || math.IsNaN(end) {
						t.Errorf("the losses go from %g to %g", begin, end)
					}
				})
			}
		}
	}
}
