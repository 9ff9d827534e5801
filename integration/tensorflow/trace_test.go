//go:build interop

package tensorflow_test

import "testing"

// TestFullTrace: RunOptions.FULL_TRACE has the kernels and the transfers of a Tryst task, by the
// names that they have on a TensorFlow task.
func TestFullTrace(t *testing.T) {
	c := newCluster(t, map[string]int{"chief": 1, "ps": 1, "tf": 1})
	c.startTryst(t, serverTask{Job: "ps", Kernels: "go"})
	c.startTask(t, "tf", 0)
	chief := c.startTask(t, "chief", 0)
	want := chief.value("trace", args{"ps": "/job:tf"})
	got := chief.value("trace", args{"ps": "/job:ps"})
	t.Logf("TensorFlow: %v", want)
	t.Logf("Tryst: %v", got)
}

// TestClusterSpecPropagation: a session brings its own cluster, in which the tasks have other names.
func TestClusterSpecPropagation(t *testing.T) {
	c := newCluster(t, map[string]int{"chief": 1, "ps": 1, "tf": 1})
	c.startTryst(t, serverTask{Job: "ps", Kernels: "go"})
	c.startTask(t, "tf", 0)
	chief := c.startTask(t, "chief", 0)
	program := func(task string) any {
		return chief.value("propagation", args{
			"on": "/job:helper/task:3/device:CPU:0",
			"cluster": map[string]any{
				"boss": map[string]string{"0": c["chief"][0]}, "helper": map[string]string{"3": c[task][0]},
			},
		})
	}
	want := program("tf")
	wantNear(t, "", program("ps"), want, 0)
}
