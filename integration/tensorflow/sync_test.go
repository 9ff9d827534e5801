//go:build interop

package tensorflow_test

import (
	"testing"

	"github.com/tryst-rdma/tryst/status"
)

// TestSyncReplicas: two workers train in TensorFlow's synchronous mode with two tasks of a ps. The second
// one comes when the first has made some steps. Gradients wait in accumulators and workers in a queue,
// both on the ps, and each step gets there as on tasks of TensorFlow.
func TestSyncReplicas(t *testing.T) {
	t.Parallel()
	const steps, early = 60, 5
	c := newCluster(t, map[string]int{"worker": 2, "tf": 2, "go": 2, "tensorflow": 2, "process": 2})
	var workers []*python
	for i := range 2 {
		c.beginTask(t, "tf", i)
		workers = append(workers, c.beginTask(t, "worker", i))
		c.startTrystProcess(t, serverTask{Job: "go", Task: i, Kernels: "go"})
		c.startTrystProcess(t, serverTask{Job: "tensorflow", Task: i, Kernels: "tensorflow"})
		c.startTrystProcess(t, serverTask{Job: "process", Task: i, Kernels: "process"})
	}
	for _, w := range workers {
		w.ready()
	}
	for _, variables := range []string{"ref", "resource"} {
		var want float64
		for _, ps := range []string{"tf", "go", "tensorflow", "process"} {
			t.Run(variables+" "+ps, func(t *testing.T) {
				first, second := workers[0].in(t), workers[1].in(t)
				a := args{"ps": "/job:" + ps, "steps": steps, "variables": variables, "pause": early}
				first.begin("sync_replicas", a)
				first.event("session")
				first.reply("")
				first.event("half-way")
				second.begin("sync_replicas", a)
				second.event("session")
				first.reply("")
				second.reply("")
				second.event("half-way")
				second.reply("")
				for i, w := range []*python{first, second} {
					r := w.result()
					v, _ := r.Value.(map[string]any)
					step, _ := v["step"].(float64)
					last, _ := v["last"].(float64)
					if ps == "tf" {
						want = last
					}
					// Which worker's gradients are in a step may differ.
					if r.Code != status.OK || step < steps-2 || last > 2*want || last < want/2 {
						t.Errorf("worker %d ended with %v %s %v, want step %d and the loss %g", i, r.Code, r.Message, v, steps, want)
					}
				}
			})
		}
	}
}
