//go:build interop

package tensorflow_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/internal/config"
)

// providers is the wires between two Tryst tasks, by the name of their provider.
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
				w.tryst[job] = append(w.tryst[job], c.startTryst(t, serverTask{Job: job, Task: i, Kernels: set}, func(conf *config.Config) {
					conf.Transport, conf.Provider, conf.CPUDevices = "verbs", p, 2
					conf.Arena, conf.ArenaLimit = 4<<20, 64<<20
				}))
			}
		}
	}
	for _, p := range started {
		w.chief = p.ready()
	}
	return w
}

// TestBetweenDevices: a TensorFlow master places a program on two Tryst tasks, or on two devices of
// one, and gets the values that two TensorFlow tasks give. What two tasks send each other takes their
// wire.
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
	for _, set := range sets {
		t.Run("trace of two devices, "+set, func(t *testing.T) {
			task := "/job:tcp_" + set + "/replica:0/task:0/device:CPU:"
			got := w.chief.in(t).value("two_devices", args{"on": task + "1", "here": task + "0"})
			wantNear(t, "", got, []any{[]any{6.0, 20.0}, []any{task + "0", task + "1"}}, 0)
		})
	}
}

// between returns the arguments for the program between: a job, whose task 0 it uses, and the device
// in place of the chief's.
func (tr trial) between(job, here string) args {
	a := tr.on(strings.TrimPrefix(job, "/job:"))
	a["program"], a["here"] = tr.program, here
	return a
}

// wantWire checks that two tasks have sent each other values since a time, all over a provider's
// device, and that all other values came over gRPC.
func wantWire(t *testing.T, provider string, since time.Time, a, b *trystTask) {
	t.Helper()
	n := 0
	for _, to := range []*trystTask{a, b} {
		for _, tr := range to.Transfers() {
			switch {
			case !tr.End.After(since):
			case tr.Source.Task != a.Task() && tr.Source.Task != b.Task():
				if tr.Transport != "grpc" {
					t.Errorf("a value of TensorFlow's came over %s", tr.Transport)
				}
			default:
				n++
				if tr.Transport != "verbs" || !strings.HasPrefix(tr.Device, provider) {
					t.Errorf("%s of %d bytes took %s (%s), want %s", tr.Tensor, tr.Bytes, tr.Transport, tr.Device, provider)
				}
			}
		}
	}
	if n == 0 {
		t.Error("the two tasks sent each other nothing")
	}
}
