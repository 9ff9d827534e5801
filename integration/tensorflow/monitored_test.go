//go:build interop

package tensorflow_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/tryst-rdma/tryst/status"
)

// TestMonitoredSession: a MonitoredTrainingSession saves the variables of a Tryst ps, which is confined to
// the directory of the checkpoints. The ps is killed and started again, and the next session restores them
// and goes on, with the losses of TensorFlow alone.
func TestMonitoredSession(t *testing.T) {
	c := newCluster(t, map[string]int{"chief": 1, "tf": 1, "process": 1, "go": 1})
	checkpoints := t.TempDir()
	restart := map[string]func(){"tf": func() {}}
	for _, set := range []string{"process", "go"} {
		restart[set] = c.startTrystProcess(t, serverTask{Job: set, Kernels: set, Files: checkpoints}).restart
	}
	c.startTask(t, "tf", 0)
	chief := c.startTask(t, "chief", 0)
	for _, variables := range []string{"ref", "resource"} {
		var want []any
		for _, ps := range []string{"tf", "process", "go"} {
			t.Run(variables+" "+ps, func(t *testing.T) {
				a := args{"ps": "/job:" + ps, "directory": newDirectory(t, checkpoints), "steps": 100, "variables": variables}
				got := []any{chief.in(t).value("monitored", a)}
				restart[ps]()
				if got = append(got, chief.in(t).value("monitored", a)); want == nil {
					want = got
				}
				wantNear(t, "", got, want, 1e-6)
				if second, _ := got[1].(map[string]any); second["first"] != 100.0 {
					t.Errorf("the second session began at step %v, want 100: it must restore", second["first"])
				}
			})
		}
	}
}

// newDirectory makes a directory below another one.
func newDirectory(t *testing.T, below string) string {
	t.Helper()
	directory, err := os.MkdirTemp(below, "")
	if err != nil {
		t.Fatal(err)
	}
	return directory
}

// TestKilledInAMonitoredSession: the ps with the kernels in Go is killed while a MonitoredTrainingSession trains. The
// session makes a new one by itself, which restores the last checkpoint and goes on to the losses of TensorFlow alone.
func TestKilledInAMonitoredSession(t *testing.T) {
	c := newCluster(t, map[string]int{"chief": 1, "tf": 1, "go": 1})
	checkpoints := t.TempDir()
	tryst := c.startTrystProcess(t, serverTask{Job: "go", Kernels: "go", Files: checkpoints})
	c.startTask(t, "tf", 0)
	chief := c.startTask(t, "chief", 0)
	const steps, pause = 100, 70 // the checkpoint before is that of step 50
	train := func(ps string, killed func()) []any {
		chief.begin("monitored", args{"ps": "/job:" + ps, "directory": newDirectory(t, checkpoints), "steps": steps, "pause": pause})
		chief.event("half-way")
		killed()
		chief.reply("")
		r := chief.result()
		v, _ := r.Value.(map[string]any)
		losses, _ := v["losses"].([]any)
		if r.Code != status.OK || len(losses) < steps {
			t.Fatalf("%s: %v %s %v", ps, r.Code, r.Message, v)
		}
		return losses
	}
	want := train("tf", func() {})
	got := train("go", tryst.restart)
	if again := len(got) - len(want); again <= 0 || again >= pause {
		t.Errorf("%d steps ran again; want some, and fewer than the %d before the kill", again, pause)
	}
	wantNear(t, "", got[len(got)-20:], want[len(want)-20:], 1e-6)
}

// TestCheckpointsOfBoth: what a ps of TensorFlow has saved one of Tryst restores, and the other way round. A session goes
// on where the other one has ended.
func TestCheckpointsOfBoth(t *testing.T) {
	c := newCluster(t, map[string]int{"chief": 1, "tf": 1, "go": 1})
	checkpoints := t.TempDir()
	c.startTryst(t, serverTask{Job: "go", Kernels: "go", Files: checkpoints})
	c.startTask(t, "tf", 0)
	chief := c.startTask(t, "chief", 0)
	var want []any
	for _, tasks := range [][2]string{{"tf", "tf"}, {"tf", "go"}, {"go", "tf"}, {"go", "go"}} {
		t.Run(tasks[0]+" "+tasks[1], func(t *testing.T) {
			directory := newDirectory(t, checkpoints)
			var got []any
			for _, ps := range tasks {
				got = append(got, chief.in(t).value("monitored", args{"ps": "/job:" + ps, "directory": directory, "steps": 60, "variables": "resource"}))
			}
			if want == nil {
				want = got
			}
			wantNear(t, "", got, want, 1e-6)
		})
	}
}

// TestPartsOnSeveralTasks: a variable in parts and variables of several types on two tasks are one checkpoint, which is
// restored in other parts, by tasks of TensorFlow and of Tryst.
func TestPartsOnSeveralTasks(t *testing.T) {
	c := newCluster(t, map[string]int{"chief": 1, "tf": 2, "go": 2})
	checkpoints := t.TempDir()
	for i := range 2 {
		c.startTryst(t, serverTask{Job: "go", Task: i, Kernels: "go", Files: checkpoints})
		c.startTask(t, "tf", i)
	}
	chief := c.startTask(t, "chief", 0)
	for _, saves := range []string{"tf", "go"} {
		a := args{"ps": "/job:" + saves, "prefix": newDirectory(t, checkpoints) + "/ckpt", "parts": 3, "save": true}
		want := chief.value("save_parts", a)
		for _, restores := range []string{"tf", "go"} {
			for _, parts := range []int{1, 2, 3, 4} {
				t.Run(fmt.Sprint(saves, " ", restores, " ", parts), func(t *testing.T) {
					a["ps"], a["parts"], a["save"] = "/job:"+restores, parts, false
					wantNear(t, "", chief.in(t).value("save_parts", a), want, 0)
				})
			}
		}
	}
}

// TestMonitoredSessionWithoutFiles: the kernels in Go use no files unless a directory is set. The client's error names an op, the
// node, and what to do.
func TestMonitoredSessionWithoutFiles(t *testing.T) {
	c := newCluster(t, map[string]int{"chief": 1, "ps": 1})
	c.startTryst(t, serverTask{Job: "ps", Kernels: "go"})
	r := c.startTask(t, "chief", 0).run("monitored", args{"ps": "/job:ps", "directory": t.TempDir(), "steps": 10})
	if r.Code != status.PermissionDenied || !strings.Contains(r.Message, "op SaveV2 reads or writes files of this server") || !strings.Contains(r.Message, "--tensorflow-files DIR") {
		t.Errorf("the client got %v: %s\nwant PermissionDenied with SaveV2 and what to do", r.Code, r.Message)
	}
}
