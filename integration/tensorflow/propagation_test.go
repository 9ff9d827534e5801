//go:build interop

package tensorflow_test

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/server"
)

// TestClusterSpecPropagation: a session brings its own cluster, in which the tasks have other names.
func TestClusterSpecPropagation(t *testing.T) {
	c := newCluster(t, map[string]int{"chief": 1, "go": 1, "tensorflow": 1, "tf": 1})
	for _, set := range sets {
		c.startTryst(t, serverTask{Job: set, Kernels: set})
	}
	c.startTask(t, "tf", 0)
	chief := c.startTask(t, "chief", 0)
	program := func(t *testing.T, task string) any {
		return chief.in(t).value("propagation", args{
			"on": "/job:helper/task:3/device:CPU:0",
			"cluster": map[string]any{
				"boss": map[string]string{"0": c["chief"][0]}, "helper": map[string]string{"3": c[task][0]},
			},
		})
	}
	want := program(t, "tf")
	for _, set := range sets {
		t.Run(set, func(t *testing.T) { wantNear(t, "", program(t, set), want, 0) })
	}
}

// TestClusterSpecPropagationBetweenTasks: a session brings its own cluster, in which two Tryst tasks have
// other names, or that of each other. What they send each other takes their route.
func TestClusterSpecPropagationBetweenTasks(t *testing.T) {
	jobs := map[string]int{"chief": 1, "tf": 2}
	for _, p := range providers {
		jobs[p] = 2
	}
	c := newCluster(t, jobs)
	started := []*python{c.beginTask(t, "tf", 0), c.beginTask(t, "tf", 1), c.beginTask(t, "chief", 0)}
	tasks := map[string][]*trystTask{}
	for _, p := range providers {
		for i := range 2 {
			tasks[p] = append(tasks[p], c.startTryst(t, serverTask{Job: p, Task: i, Kernels: sets[i], Provider: p}))
		}
	}
	var chief *python
	for _, p := range started {
		chief = p.ready()
	}
	// The first name is that of the second task of a job.
	program := func(t *testing.T, job string, names [2]cluster.Task) any {
		return chief.in(t).value("propagation_between", args{
			"on": names[0].String(), "here": names[1].String(),
			"cluster": map[string]any{
				"boss": map[string]string{"0": c["chief"][0]},
				names[0].Job: map[string]string{
					strconv.Itoa(names[0].Index): c[job][1], strconv.Itoa(names[1].Index): c[job][0],
				},
			},
		})
	}
	for _, p := range providers {
		for i, s := range tasks[p] {
			(&testbed{t: t}).until("the link over "+p, func() bool {
				return slices.ContainsFunc(s.Links(), func(l server.Link) bool { return l.Task == tasks[p][1-i].Task().String() && l.Over == p })
			})
		}
		for name, names := range map[string][2]cluster.Task{
			"other names":     {{Job: "helper", Index: 3}, {Job: "helper", Index: 1}},
			"exchanged names": {{Job: p, Index: 0}, {Job: p, Index: 1}},
		} {
			t.Run(p+", "+name, func(t *testing.T) {
				want := program(t, "tf", names)
				begin := time.Now()
				wantNear(t, "", program(t, p, names), want, 0)
				wantReceived(t, p, begin, tasks[p], names[0], names[1])
			})
		}
	}
}
