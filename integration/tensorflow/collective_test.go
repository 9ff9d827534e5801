//go:build interop

package tensorflow_test

import (
	"fmt"
	"testing"
)

// TestCollectives: an all-reduce, a broadcast and a gather among two TensorFlow workers and a Tryst
// worker have the values of three TensorFlow workers. The last worker of each job is the one that
// differs.
func TestCollectives(t *testing.T) {
	type group struct {
		chief *python
		job   string
	}
	var groups []group
	for _, kernels := range append([]string{""}, sets...) {
		job := "worker"
		c := newCluster(t, map[string]int{job: 3})
		if kernels == "" {
			c.startTask(t, job, 2)
		} else {
			c.startTryst(t, serverTask{Job: job, Task: 2, Kernels: kernels})
		}
		c.startTask(t, job, 1)
		groups = append(groups, group{c.startTask(t, job, 0), job})
	}
	for i, test := range []struct {
		program string
		args    args
	}{
		{"all_reduce", args{"n": 1}},
		{"all_reduce", args{"n": 1000}},
		{"all_reduce", args{"n": 100003}},
		{"all_reduce", args{"n": 1000, "v2": false}},
		{"all_reduce", args{"n": 1000, "dtype": "float64", "final": "Id"}},
		{"all_reduce", args{"n": 1000, "dtype": "float16"}},
		{"all_reduce", args{"n": 1000, "dtype": "int32", "merge": "Max", "final": "Id"}},
		{"all_reduce", args{"n": 1000, "dtype": "int64", "merge": "Min", "final": "Id"}},
		{"broadcast_and_gather", args{"source": 0}},
		{"broadcast_and_gather", args{"source": 2}},
	} {
		t.Run(fmt.Sprintf("%s %v", test.program, test.args), func(t *testing.T) {
			test.args["size"], test.args["instance"] = 3, 10+2*i
			var want any
			for i, g := range groups {
				test.args["job"] = g.job
				got := g.chief.in(t).value(test.program, test.args)
				if i == 0 {
					want = got
					continue
				}
				t.Run(sets[i-1], func(t *testing.T) { wantNear(t, "", got, want, 0) })
			}
		})
	}
}
