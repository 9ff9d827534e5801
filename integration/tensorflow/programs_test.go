//go:build interop

package tensorflow_test

import (
	"fmt"
	"maps"
	"testing"
)

// trial is a program and where the values of Tryst's part must equal those of TensorFlow's.
type trial struct {
	name, program string
	args          args
	// ps says that the program takes a job for its variables; else it takes a device.
	ps bool
	// apart says that its two devices send each other nothing.
	apart bool
	// tolerance is how far numbers may differ, relatively; 0 for equal.
	tolerance float64
}

// TestPrograms: each program gives the same values when a part of it runs on a Tryst task as when
// that part runs on a TensorFlow task.
func TestPrograms(t *testing.T) {
	chief := startBoth(t)
	for _, trial := range trials() {
		t.Run(trial.name, func(t *testing.T) {
			want := chief.in(t).value(trial.program, trial.on("tf"))
			for _, set := range sets {
				t.Run(set, func(t *testing.T) {
					wantNear(t, "", chief.in(t).value(trial.program, trial.on(set)), want, trial.tolerance)
				})
			}
		})
	}
}

// on returns the arguments for a job.
func (tr trial) on(job string) args {
	a := args{}
	maps.Copy(a, tr.args)
	if tr.ps {
		a["ps"] = "/job:" + job
	} else {
		a["on"] = "/job:" + job + "/task:0/device:CPU:0"
	}
	return a
}

func trials() (ts []trial) {
	for _, dtype := range []string{
		"float16", "float32", "float64", "bfloat16", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
		"bool", "complex64", "complex128", "string",
	} {
		for _, shape := range [][]int{{}, {2, 3}, {3, 0, 7}, {1500}} {
			ts = append(ts, trial{name: fmt.Sprintf("echo %s %v", dtype, shape), program: "echo", args: args{"dtype": dtype, "shape": shape}})
		}
	}
	ts = append(ts,
		trial{name: "control edges", program: "control"},
		trial{name: "loop across", program: "loop"},
		trial{name: "loop across, of TF2", program: "loop", args: args{"v2": true}},
		trial{name: "loop with an invariant across", program: "loop_accumulates"},
		trial{name: "loop in a loop", program: "loop_there"},
		trial{name: "cond across, taken", program: "condition", args: args{"taken": true}},
		trial{name: "cond across, not taken", program: "condition", args: args{"taken": false}},
		trial{name: "cond across, of TF2, taken", program: "condition", args: args{"taken": true, "v2": true}},
		trial{name: "cond across, of TF2, not taken", program: "condition", args: args{"taken": false, "v2": true}},
		trial{name: "dead value, left", program: "dead", args: args{"taken": false}},
		trial{name: "dead value, right", program: "dead", args: args{"taken": true}},
		trial{name: "functions", program: "function", tolerance: 1e-6},
		trial{name: "partial run", program: "partial"},
		trial{name: "small variables read before an update", program: "read_after_update", args: args{"size": 1}},
		trial{name: "large variables read before an update", program: "read_after_update", args: args{"size": 2000}},
		trial{name: "initialisers", program: "initialisers", tolerance: 1e-6},
		trial{name: "random nodes of two graphs and sessions", program: "random_twice", tolerance: 1e-6},
		trial{name: "random nodes of two graphs and isolated sessions", program: "random_twice", args: args{"isolated": true}, tolerance: 1e-6},
		trial{name: "random node in a function", program: "random_in_function", tolerance: 1e-6},
		trial{name: "two sessions at once", program: "sessions"},
		trial{name: "two isolated sessions at once", program: "sessions", args: args{"isolated": true}},
		trial{name: "reset", program: "reset"},
		trial{name: "reset of a container", program: "reset", args: args{"container": "box"}},
		trial{name: "device filters", program: "filters"},
	)
	for _, variables := range []string{"ref", "resource"} {
		for _, optimizer := range []string{"sgd", "momentum", "adagrad", "adam"} {
			ts = append(ts,
				trial{name: "embedding " + optimizer + " " + variables, program: "embedding", ps: true, args: args{"optimizer": optimizer, "variables": variables}, tolerance: 1e-5},
				trial{name: "model there " + optimizer + " " + variables, program: "model_there", args: args{"optimizer": optimizer, "variables": variables}, tolerance: 1e-5})
		}
		ts = append(ts, trial{name: "embedding in parts " + variables, program: "partitioned_embedding", ps: true, args: args{"variables": variables}, tolerance: 1e-5})
	}
	if !testing.Short() {
		ts = append(ts, trial{name: "512 MiB", program: "large", args: args{"mib": 512}})
	}
	return ts
}
