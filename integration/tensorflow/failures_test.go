//go:build interop

package tensorflow_test

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestKernelError: the error of a kernel on either side reaches the Python client with the code and
// text that it has when all of it is TensorFlow.
func TestKernelError(t *testing.T) {
	chief := startBoth(t)
	for _, kind := range []string{"gather", "reshape", "divide", "uninitialised", "uninitialised resource", "add"} {
		t.Run(kind, func(t *testing.T) {
			// With all of it on the chief the text is that of the kernel alone.
			want := chief.in(t).run("failure", args{"on": "/job:chief/task:0", "kind": kind, "where": "there"})
			text, _, _ := strings.Cut(strings.TrimPrefix(want.Message, "Graph execution error:\n\n"), "\n")
			text, _, _ = strings.Cut(text, " Debug info: ") // has the name of the job
			for _, set := range sets {
				for _, where := range []string{"there", "here"} {
					t.Run(set+" "+where, func(t *testing.T) {
						got := chief.in(t).run("failure", args{"on": "/job:" + set + "/task:0/device:CPU:0", "kind": kind, "where": where})
						if got.Code != want.Code || !strings.Contains(got.Message, text) {
							t.Errorf("the client got %v: %s\nwant %v with %s", got.Code, got.Message, want.Code, text)
						}
					})
				}
			}
		})
	}
}

// TestN22RootError: the client gets the error of the kernel that failed, and none that follows from it: with
// the other side in an op that takes its time or in a receive, which may have begun before.
func TestN22RootError(t *testing.T) {
	chief := startBoth(t)
	const invalidArgument = 3
	for _, set := range sets {
		for _, where := range []string{"there", "here"} {
			for _, other := range []string{"op", "receive"} {
				for _, order := range []string{"before", "after"} {
					// The set go has no op that waits. And a master can lose the cancel of a call that it has not sent yet.
					if where == "here" && other == "op" && (set == "go" || order == "before") {
						continue
					}
					t.Run(strings.Join([]string{set, where, other, order}, " "), func(t *testing.T) {
						got := chief.in(t).run("aggregated", args{"on": "/job:" + set + "/task:0/device:CPU:0", "where": where, "other": other, "order": order})
						message, _, _ := strings.Cut(got.Message, "Recent warning and error logs:") // of the whole process
						text := strings.ToLower(message)
						if got.Code != invalidArgument || !strings.Contains(text, "indices[1] = 9 is not in [0, 3)") || strings.Contains(text, "cancel") || strings.Contains(text, "abort") {
							t.Errorf("the client got %v: %s", got.Code, message)
						}
					})
				}
			}
		}
	}
}

// TestH11RemoteDevices: TensorFlow's master mirrors the devices of our task as those of its own.
func TestH11RemoteDevices(t *testing.T) {
	chief := startBoth(t)
	want := chief.in(t).value("devices", args{"on": "/job:tf/task:0/device:CPU:0"})
	for _, set := range sets {
		if got := chief.in(t).value("devices", args{"on": "/job:" + set + "/task:0/device:CPU:0"}); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("set %s: devices %v, want %v", set, got, want)
		}
	}
}

// TestEndInStep: a step that waits ends when its session is closed, and by its timeout; the task goes
// on with other sessions.
func TestEndInStep(t *testing.T) {
	c := newCluster(t, map[string]int{"chief": 1, "ps": 1})
	tryst := c.startTryst(t, serverTask{Job: "ps", Kernels: "go"})
	chief := c.startTask(t, "chief", 0)
	const deadlineExceeded = 4
	for program, want := range map[string][]any{"closed_in_step": {true, 1.0}, "timeout_in_step": {float64(deadlineExceeded), 1.0}} {
		t.Run(program, func(t *testing.T) {
			wantNear(t, "", chief.in(t).value(program, args{"on": "/job:ps/task:0/device:CPU:0"}), want, 0)
		})
	}
	untilMetric(t, tryst, "tryst_steps", 0)
}

// TestKilledBetweenSteps: a Tryst task is killed and started again between two steps. The client
// gets an error at the next step, and a new session finds a task without variables.
func TestKilledBetweenSteps(t *testing.T) {
	c := newCluster(t, map[string]int{"chief": 1, "ps": 1})
	tryst := c.startTrystProcess(t, serverTask{Job: "ps", Kernels: "go"})
	chief := c.startTask(t, "chief", 0)
	chief.begin("killed_between_steps", args{"on": "/job:ps/task:0/device:CPU:0"})
	chief.event("between steps")
	tryst.restart()
	chief.reply("")
	v, _ := chief.result().Value.(map[string]any)
	// Aborted names the session that the restarted task does not know; Unavailable is the end of
	// the connection.
	codes, _ := v["codes"].([]any)
	const aborted, unavailable = 10.0, 14.0
	if len(codes) != 1 || (codes[0] != aborted && codes[0] != unavailable) {
		t.Errorf("the next step ended with %v, want Aborted or Unavailable", codes)
	}
	delete(v, "codes")
	wantNear(t, "", v, map[string]any{"first": 2.0, "initialised": false, "second": 2.0}, 0)
}

// TestKilledInStep: a Tryst task is killed in a step. The step ends at the client, and with the task
// back another session works.
func TestKilledInStep(t *testing.T) {
	c := newCluster(t, map[string]int{"chief": 1, "ps": 1})
	tryst := c.startTrystProcess(t, serverTask{Job: "ps", Kernels: "go"})
	chief := c.startTask(t, "chief", 0)
	chief.begin("killed_in_step", args{"on": "/job:ps/task:0/device:CPU:0"})
	chief.event("in a step")
	tryst.kill()
	chief.reply("")
	chief.event("step ended")
	tryst.start()
	chief.reply("")
	const unavailable = 14.0
	wantNear(t, "", chief.result().Value, []any{unavailable, 0.0}, 0)
}

// TestMasterKilled: the chief is killed in a step and started again. The Tryst task ends the run when
// the connection breaks, drops what is left of the step when the chief is back, and serves it.
func TestMasterKilled(t *testing.T) {
	c := newCluster(t, map[string]int{"chief": 1, "ps": 1})
	tryst := c.startTryst(t, serverTask{Job: "ps", Kernels: "go"})
	chief := c.startTask(t, "chief", 0)
	chief.begin("wait_in_step", args{"on": "/job:ps/task:0/device:CPU:0"})
	chief.event("in a step")
	chief.kill()
	untilMetric(t, tryst, "tryst_running_steps", 0)

	chief = c.startTask(t, "chief", 0)
	chief.value("train", args{"ps": "/job:ps", "steps": 5})
	untilMetric(t, tryst, "tryst_steps", 0)
	untilMetric(t, tryst, "tryst_sessions", 0)
}

// TestStopped: a Tryst ps is stopped for 15 s in a training. The training waits, and goes on with
// the losses that it has without a stop.
func TestStopped(t *testing.T) {
	c := newCluster(t, map[string]int{"chief": 1, "ps": 1, "tf": 1})
	tryst := c.startTrystProcess(t, serverTask{Job: "ps", Kernels: "go"})
	c.startTask(t, "tf", 0)
	chief := c.startTask(t, "chief", 0)
	want := chief.value("train_with_pause", args{"ps": "/job:tf"})
	chief.begin("train_with_pause", args{"ps": "/job:ps", "at": 30})
	chief.event("half-way")
	tryst.signal(syscall.SIGSTOP)
	chief.reply("")
	<-time.After(15 * time.Second) // the time that the issue of this test names
	tryst.signal(syscall.SIGCONT)
	wantNear(t, "", chief.result().Value, want, 1e-5)
}

// untilMetric waits until a metric of a server has a value.
func untilMetric(t testing.TB, s *trystTask, name string, want float64) {
	t.Helper()
	(&testbed{t: t, registry: s.registry}).until(fmt.Sprintf("%s of %v", name, want), func() bool {
		return (&testbed{t: t, registry: s.registry}).metric(name, "") == want
	})
}
