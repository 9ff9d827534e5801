//go:build interop

package tensorflow_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/server"
	"github.com/tryst-rdma/tryst/transport"
)

// providers is the routes between two Tryst tasks, by the name of their provider.
var providers = []string{"shm", "tcp"}

// betweenTrials is the programs that run on two devices that are not the master's.
func betweenTrials() []trial {
	ts := []trial{
		{name: "float", program: "echo", args: args{"dtype": "float32", "shape": []int{1500}}},
		{name: "empty", program: "echo", args: args{"dtype": "int64", "shape": []int{3, 0, 7}}},
		{name: "strings", program: "echo", args: args{"dtype": "string", "shape": []int{2, 3}}},
		{name: "many strings", program: "echo", args: args{"dtype": "string", "shape": []int{5000}}},
		{name: "16 MiB", program: "large", args: args{"mib": 16}},
		{name: "control edges", program: "control"},
		{name: "loop", program: "loop"},
		{name: "loop of TF2", program: "loop", args: args{"v2": true}},
		{name: "loop with an invariant", program: "loop_accumulates"},
		{name: "cond, taken", program: "condition", args: args{"taken": true}},
		{name: "cond, not taken", program: "condition", args: args{"taken": false}},
		{name: "cond of TF2, taken", program: "condition", args: args{"taken": true, "v2": true}},
		{name: "cond of TF2, not taken", program: "condition", args: args{"taken": false, "v2": true}},
		{name: "dead value, left", program: "dead", args: args{"taken": false}},
		{name: "dead value, right", program: "dead", args: args{"taken": true}},
		{name: "partial run", program: "partial"},
	}
	for _, variables := range []string{"ref", "resource"} {
		ts = append(ts,
			trial{name: "same names " + variables, program: "same_names", args: args{"variables": variables}, apart: true},
			trial{name: "embedding " + variables, program: "embedding", ps: true, args: args{"variables": variables, "optimizer": "adam", "steps": 10}, tolerance: 1e-5},
			trial{name: "training " + variables, program: "train", ps: true, args: args{"variables": variables, "steps": 15}, tolerance: 1e-5})
	}
	return ts
}

// town is a cluster with a chief, a job tf of two TensorFlow tasks, and for each provider and kernel
// set a job of two Tryst tasks.
type town struct {
	chief *python
	tryst map[string][]*trystTask // by job
}

func startTown(t *testing.T) *town {
	t.Helper()
	jobs := map[string]int{"chief": 1, "tf": 2}
	for _, p := range providers {
		for _, set := range sets {
			jobs[p+"_"+set] = 2
		}
	}
	c := newCluster(t, jobs)
	w := &town{tryst: map[string][]*trystTask{}}
	started := []*python{c.beginTask(t, "tf", 0), c.beginTask(t, "tf", 1), c.beginTask(t, "chief", 0)}
	for _, p := range providers {
		for _, set := range sets {
			job := p + "_" + set
			for i := range 2 {
				w.tryst[job] = append(w.tryst[job], c.startTryst(t, serverTask{Job: job, Task: i, Kernels: set, Provider: p}, func(conf *server.Config) { conf.CPUDevices = 2 }))
			}
		}
	}
	for _, p := range started {
		w.chief = p.ready()
	}
	w.awaitLinks(t)
	return w
}

// awaitLinks waits until the Tryst tasks with one provider reach each other over it. A value that is
// sent before takes gRPC.
func (w *town) awaitLinks(t *testing.T) {
	t.Helper()
	for _, p := range providers {
		var all []*trystTask
		for _, set := range sets {
			all = append(all, w.tryst[p+"_"+set]...)
		}
		for _, s := range all {
			(&testbed{t: t}).until(fmt.Sprintf("the links of %s over %s", s.Task(), p), func() bool {
				n := 0
				for _, l := range s.Links() {
					if l.Over == p {
						n++
					}
				}
				return n == len(all)-1
			})
		}
	}
}

// TestBetweenDevices: a TensorFlow master places a program on two Tryst tasks, or on two devices of
// one, and gets the values that two TensorFlow tasks give. What two tasks send each other takes their
// route.
func TestBetweenDevices(t *testing.T) {
	w := startTown(t)
	for _, trial := range betweenTrials() {
		t.Run(trial.name, func(t *testing.T) {
			want := w.chief.in(t).value("between", trial.between("/job:tf", "/job:tf/task:1"))
			for _, p := range providers {
				for _, pair := range []struct{ on, here string }{{"go", "go"}, {"go", "tensorflow"}, {"tensorflow", "go"}} {
					t.Run(fmt.Sprintf("%s, %s and %s", p, pair.on, pair.here), func(t *testing.T) {
						on, here := p+"_"+pair.on, p+"_"+pair.here
						begin := time.Now()
						got := w.chief.in(t).value("between", trial.between("/job:"+on, "/job:"+here+"/task:1"))
						wantNear(t, "", got, want, trial.tolerance)
						if trial.apart {
							return
						}
						wantWire(t, p, begin, w.tryst[on][0], w.tryst[here][1])
					})
				}
			}
			for _, set := range sets {
				t.Run("two devices, "+set, func(t *testing.T) {
					job := "/job:shm_" + set
					got := w.chief.in(t).value("between", trial.between(job, job+"/task:0/device:CPU:1"))
					wantNear(t, "", got, want, trial.tolerance)
				})
			}
		})
	}
	t.Run("errors", func(t *testing.T) { w.errorsBetween(t) })
	for _, set := range sets {
		t.Run("trace of two devices, "+set, func(t *testing.T) {
			task := "/job:tcp_" + set + "/replica:0/task:0/device:CPU:"
			got := w.chief.in(t).value("two_devices", args{"on": task + "1", "here": task + "0"})
			wantNear(t, "", got, []any{[]any{6.0, 20.0}, []any{task + "0", task + "1"}}, 0)
		})
	}
}

// errorsBetween: a kernel that fails on one of two Tryst tasks, or of two devices of one, while the
// other waits for its value. The client gets the code and the text that TensorFlow has.
func (w *town) errorsBetween(t *testing.T) {
	for kind, text := range map[string]string{
		"gather": "indices[1] = 9 is not in [0, 3)", "uninitialised": "Attempting to use uninitialized value never", "add": "Incompatible shapes: [2] vs. [3]",
	} {
		for _, where := range []string{"there", "here"} {
			failure := trial{program: "failure", args: args{"kind": kind, "where": where}}
			want := w.chief.in(t).run("between", failure.between("/job:tf", "/job:tf/task:1"))
			if !strings.Contains(want.Message, text) {
				t.Errorf("TensorFlow says %s, want %q in it", want.Message, text)
			}
			for _, c := range [][2]string{
				{"/job:shm_go", "/job:shm_go/task:1"}, {"/job:tcp_go", "/job:tcp_tensorflow/task:1"}, {"/job:tcp_tensorflow", "/job:tcp_go/task:1"},
				{"/job:tcp_go", "/job:tcp_go/task:0/device:CPU:1"}, {"/job:shm_tensorflow", "/job:shm_tensorflow/task:0/device:CPU:1"},
			} {
				t.Run(kind+" "+where+" "+c[0]+" and "+c[1], func(t *testing.T) {
					got := w.chief.in(t).run("between", failure.between(c[0], c[1]))
					if got.Code != want.Code || !strings.Contains(got.Message, text) {
						t.Errorf("the client got %v: %s\nwant %v with %s", got.Code, got.Message, want.Code, text)
					}
				})
			}
		}
	}
}

// between returns the arguments for the program between: a job, whose task 0 it uses, and the device
// in place of the chief's.
func (tr trial) between(job, here string) args {
	a := tr.on(strings.TrimPrefix(job, "/job:"))
	a["program"], a["here"] = tr.program, here
	return a
}

// TestKilledBetweenTasks: one of two Tryst tasks is killed in a step, while the other waits in a kernel
// of TensorFlow. The step ends, and with the task back another session sends values over their route
// again.
func TestKilledBetweenTasks(t *testing.T) {
	jobs := map[string]int{"chief": 1}
	for _, p := range providers {
		jobs[p+"_ps"], jobs[p+"_worker"] = 1, 1
	}
	c := newCluster(t, jobs)
	chief := c.beginTask(t, "chief", 0)
	for _, p := range providers {
		t.Run(p, func(t *testing.T) {
			ps := c.startTrystProcess(t, serverTask{Job: p + "_ps", Kernels: "go", Provider: p})
			worker := c.startTryst(t, serverTask{Job: p + "_worker", Kernels: "tensorflow", Provider: p})
			chief := chief.in(t)
			if p == providers[0] {
				chief.ready()
			}
			linked := func() bool {
				return slices.ContainsFunc(worker.Links(), func(l server.Link) bool { return l.Over == p && l.State == server.LinkUp })
			}
			pair := func(program string) args {
				return trial{program: program}.between("/job:"+p+"_ps", "/job:"+p+"_worker/task:0")
			}
			chief.begin("between", pair("killed_in_step"))
			chief.event("in a step")
			ps.kill()
			chief.reply("")
			chief.event("step ended")
			ps.start()
			chief.reply("")
			const unavailable = 14.0
			wantNear(t, "", chief.result().Value, []any{unavailable, 0.0}, 0)

			(&testbed{t: t}).until("the link to the new process", linked)
			since := time.Now()
			chief.value("between", pair("loop"))
			wantReceived(t, p, since, []*trystTask{worker}, cluster.Task{Job: p + "_ps"})
		})
	}
}

// wantWire checks what two tasks have received since a time: from each other, all over a provider's
// device, and all else over gRPC.
func wantWire(t *testing.T, provider string, since time.Time, a, b *trystTask) {
	t.Helper()
	wantReceived(t, provider, since, []*trystTask{a, b}, a.Task(), b.Task())
}

// wantReceived checks that tasks have received values of peers since a time, all over a provider's
// device, and all else over gRPC.
func wantReceived(t *testing.T, provider string, since time.Time, receivers []*trystTask, peers ...cluster.Task) {
	t.Helper()
	ofPeer := func(tr transport.Transfer) bool { return slices.Contains(peers, tr.Source.Task) }
	var transfers []transport.Transfer
	(&testbed{t: t}).until("a value that the tasks send each other", func() bool {
		transfers = nil
		for _, r := range receivers {
			transfers = append(transfers, r.Transfers()...)
		}
		transfers = slices.DeleteFunc(transfers, func(tr transport.Transfer) bool { return tr.End.Before(since) })
		return slices.ContainsFunc(transfers, ofPeer)
	})
	for _, tr := range transfers {
		want := "grpc ()"
		if ofPeer(tr) {
			want = fmt.Sprintf("verbs (%s0)", provider)
		}
		if got := fmt.Sprintf("%s (%s)", tr.Transport, tr.Device); got != want {
			t.Errorf("%s of %d bytes from %s took %s, want %s", tr.Tensor, tr.Bytes, tr.Source, got, want)
		}
	}
}
