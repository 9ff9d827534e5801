//go:build interop

package tensorflow_test

import (
	"os"
	"strings"
	"testing"

	"github.com/tryst-rdma/tryst/status"
)

// TestMonitoredSession: a MonitoredTrainingSession saves the variables of a Tryst ps, which is confined to
// the directory of the checkpoints. The ps is killed and started again, and the next session restores them
// and goes on, with the losses of TensorFlow alone.
func TestMonitoredSession(t *testing.T) {
	c := newCluster(t, map[string]int{"chief": 1, "tf": 1, "ps": 1})
	checkpoints := t.TempDir()
	tryst := c.startTrystProcess(t, serverTask{Job: "ps", Kernels: "process", Files: checkpoints})
	c.startTask(t, "tf", 0)
	chief := c.startTask(t, "chief", 0)
	for _, variables := range []string{"ref", "resource"} {
		t.Run(variables, func(t *testing.T) {
			train := func(ps string, restart func()) []any {
				directory, err := os.MkdirTemp(checkpoints, "")
				if err != nil {
					t.Fatal(err)
				}
				a := args{"ps": "/job:" + ps, "directory": directory, "steps": 100, "variables": variables}
				first := chief.in(t).value("monitored", a)
				restart()
				return []any{first, chief.in(t).value("monitored", a)}
			}
			want := train("tf", func() {})
			got := train("ps", tryst.restart)
			wantNear(t, "", got, want, 1e-6)
			if second, _ := got[1].(map[string]any); second["first"] != 100.0 {
				t.Errorf("the second session began at step %v, want 100: it must restore", second["first"])
			}
		})
	}
}

// TestMonitoredSessionWithoutKernels: the kernels in Go have no ops for
// checkpoints. The client's error names the first one, the node, and what to do.
func TestMonitoredSessionWithoutKernels(t *testing.T) {
	c := newCluster(t, map[string]int{"chief": 1, "ps": 1})
	c.startTryst(t, serverTask{Job: "ps", Kernels: "go"})
	r := c.startTask(t, "chief", 0).run("monitored", args{"ps": "/job:ps", "directory": t.TempDir(), "steps": 10})
	if r.Code != status.Unimplemented || !strings.Contains(r.Message, `'ShardedFilename' in the kernel set "go"`) || !strings.Contains(r.Message, "run tryst-tensorflow") {
		t.Errorf("the client got %v: %s\nwant Unimplemented with ShardedFilename and what to do", r.Code, r.Message)
	}
}
