//go:build interop

package tensorflow_test

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/status"
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
						got := chief.in(t).run("failure", args{"on": on(set), "kind": kind, "where": where})
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
	// A receive of the chief that begins when the step is cancelled already is no derived error to it: one of
	// a hundred steps with 2.13.1.
	const tries = 3
	for _, set := range sets {
		for _, where := range []string{"there", "here"} {
			for _, other := range []string{"op", "receive"} {
				for _, order := range []string{"before", "after"} {
					// A master can lose the cancel of a call that it has not sent yet.
					if where == "here" && other == "op" && order == "before" {
						continue
					}
					t.Run(strings.Join([]string{set, where, other, order}, " "), func(t *testing.T) {
						for try := 1; ; try++ {
							got := chief.in(t).run("aggregated", args{"on": on(set), "where": where, "other": other, "order": order})
							message, _, _ := strings.Cut(got.Message, "Recent warning and error logs:") // of the whole process
							text := strings.ToLower(message)
							follows := strings.Contains(text, "cancel") || strings.Contains(text, "abort")
							if got.Code != invalidArgument || !strings.Contains(text, "indices[1] = 9 is not in [0, 3)") || follows && try == tries {
								t.Errorf("the client got %v: %s", got.Code, message)
							}
							if !follows || try == tries {
								break
							}
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
		if got := chief.in(t).value("devices", args{"on": on(set)}); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("set %s: devices %v, want %v", set, got, want)
		}
	}
}

// withProcess is the kernel sets, and tensorflow with its library in a child process.
var withProcess = append(slices.Clip(sets), "process")

// waits has how a step waits for good on a task, by kernel set: for a value of the chief, in a kernel, and in a
// loop, also one that a kernel runs.
var waits = map[string][]string{
	"go":         {"receive", "dequeue", "loop"},
	"tensorflow": {"receive", "dequeue", "loop", "called_loop"},
	"process":    {"dequeue", "called_loop"},
}

// blocks is how a step waits in a kernel, by kernel set, if it can.
var blocks = map[string]string{"go": "loop", "tensorflow": "dequeue", "process": "dequeue"}

// on is the device of the Tryst task with a kernel set.
func on(set string) string { return "/job:" + set + "/task:0/device:CPU:0" }

// startForFailures starts a chief, and returns a cluster that has an address for a task of each of
// withProcess, in a job with the same name.
func startForFailures(t *testing.T) (c tasks, chief *python) {
	jobs := map[string]int{"chief": 1}
	for _, set := range withProcess {
		jobs[set] = 1
	}
	c = newCluster(t, jobs)
	return c, c.startTask(t, "chief", 0)
}

// startAll starts the tasks of startForFailures.
func (c tasks) startAll(t *testing.T) map[string]*trystTask {
	tryst := map[string]*trystTask{}
	for _, set := range withProcess {
		tryst[set] = c.startTryst(t, serverTask{Job: set, Kernels: set})
	}
	return tryst
}

// TestEndInStep: a step that waits ends when its session is closed, and by its timeout; the task goes
// on with other sessions.
func TestEndInStep(t *testing.T) {
	c, chief := startForFailures(t)
	tryst := c.startAll(t)
	end := func(program, set, how string, want ...any) {
		t.Run(strings.Join([]string{program, set, how}, " "), func(t *testing.T) {
			wantNear(t, "", chief.in(t).value(program, args{"on": on(set), "how": how}), want, 0)
			untilMetric(t, tryst[set], "tryst_running_steps", 0)
			untilMetric(t, tryst[set], "tryst_steps", 0)
		})
	}
	for _, set := range withProcess {
		for _, how := range waits[set] {
			end("closed_in_step", set, how, true, 1.0)
		}
	}
	end("timeout_in_step", "go", "receive", float64(status.DeadlineExceeded), 1.0)
	end("timeout_in_step", "go", "dequeue", float64(status.DeadlineExceeded), 1.0)
	end("timeout_in_step", "tensorflow", "dequeue", float64(status.DeadlineExceeded), 1.0)
}

// TestKilledBetweenSteps: a Tryst task is killed and started again between two steps. The client
// gets an error at the next step, and a new session finds a task without variables.
func TestKilledBetweenSteps(t *testing.T) {
	forEachSet(t, func(t *testing.T, set string, tryst *trystProcess, chief *python) {
		chief.begin("killed_between_steps", args{"on": on(set)})
		chief.event("between steps")
		tryst.restart()
		chief.reply("")
		v, _ := chief.result().Value.(map[string]any)
		// Aborted names the session that the restarted task does not know; Unavailable is the end of
		// the connection. Cancelled is that of the chief's own part, which the master may report instead.
		codes, _ := v["codes"].([]any)
		want := []any{float64(status.Aborted), float64(status.Unavailable), float64(status.Cancelled)}
		if len(codes) != 1 || !slices.Contains(want, codes[0]) {
			t.Errorf("the next step ended with %v, want Aborted, Unavailable or Cancelled", codes)
		}
		delete(v, "codes")
		wantNear(t, "", v, map[string]any{"first": 2.0, "initialised": false, "second": 2.0}, 0)
	})
}

// TestKilledInStep: a Tryst task is killed in a step. The step ends at the client, and with the task
// back another session works.
func TestKilledInStep(t *testing.T) {
	forEachSet(t, func(t *testing.T, set string, tryst *trystProcess, chief *python) {
		chief.begin("killed_in_step", args{"on": on(set), "how": blocks[set]})
		chief.event("in a step")
		tryst.kill()
		chief.reply("")
		chief.event("step ended")
		tryst.start()
		chief.reply("")
		wantNear(t, "", chief.result().Value, []any{float64(status.Unavailable), 0.0}, 0)
	})
}

// forEachSet runs a test with a Tryst process for each kernel set, and a chief.
func forEachSet(t *testing.T, test func(t *testing.T, set string, tryst *trystProcess, chief *python)) {
	c, chief := startForFailures(t)
	for _, set := range withProcess {
		t.Run(set, func(t *testing.T) {
			test(t, set, c.startTrystProcess(t, serverTask{Job: set, Kernels: set}), chief.in(t))
		})
	}
}

// TestServerClosedInStep: a Tryst server closes in a step. It does not wait for what the step waits
// for; the step ends at the client, and with the task back another session works.
func TestServerClosedInStep(t *testing.T) {
	c, chief := startForFailures(t)
	for _, set := range withProcess {
		for _, how := range waits[set] {
			t.Run(set+" "+how, func(t *testing.T) {
				chief := chief.in(t)
				tryst := c.startTryst(t, serverTask{Job: set, Kernels: set})
				chief.begin("killed_in_step", args{"on": on(set), "how": how})
				chief.event("in a step")
				if err := tryst.Close(t.Context()); err != nil {
					t.Errorf("Close: %v", err)
				}
				chief.reply("")
				chief.event("step ended")
				c.startTryst(t, serverTask{Job: set, Kernels: set})
				chief.reply("")
				v, _ := chief.result().Value.([]any)
				if len(v) > 0 && v[0] == float64(status.Cancelled) && how == "receive" {
					// The master cancels the kernel on the chief, too. It has both errors in the text, and
					// the code of the one that comes last in the alphabet.
					v[0] = float64(status.Aborted)
				}
				wantNear(t, "", v, []any{float64(status.Aborted), 0.0}, 0)
			})
		}
	}
}

// TestMasterKilled: the chief is killed in steps and started again. The Tryst tasks end the runs when
// the connection breaks, drop what is left of the steps when the chief is back, and serve it.
func TestMasterKilled(t *testing.T) {
	c, chief := startForFailures(t)
	tryst := c.startAll(t)
	for _, set := range withProcess {
		for _, how := range waits[set] {
			chief.begin("wait_in_step", args{"on": on(set), "how": how})
			chief.event("in a step")
			chief.reply("")
			chief.result()
		}
		if got, want := tryst[set].metric(t, "tryst_running_steps"), len(waits[set]); got != float64(want) {
			t.Errorf("%s: %v steps run, want %d", set, got, want)
		}
	}
	chief.kill()
	for _, set := range withProcess {
		untilMetric(t, tryst[set], "tryst_running_steps", 0)
	}

	chief = c.startTask(t, "chief", 0)
	for _, set := range withProcess {
		chief.value("train", args{"ps": "/job:" + set, "steps": 5})
		untilMetric(t, tryst[set], "tryst_steps", 0)
		untilMetric(t, tryst[set], "tryst_sessions", 0)
	}
}

// TestStopped: a Tryst ps is stopped for 15 s in a training. The training waits, and goes on with
// the losses that it has without a stop. Both kernel sets are stopped at a time, each in a training of
// its own.
func TestStopped(t *testing.T) {
	c := newCluster(t, map[string]int{"chief": len(sets), "go": 1, "tensorflow": 1, "tf": 1})
	c.startTask(t, "tf", 0)
	var trysts []*trystProcess
	var chiefs []*python
	var want any
	for i, set := range sets {
		trysts = append(trysts, c.startTrystProcess(t, serverTask{Job: set, Kernels: set}))
		chiefs = append(chiefs, c.startTask(t, "chief", i))
		if i == 0 {
			want = chiefs[0].value("train_with_pause", args{"ps": "/job:tf"})
		}
		chiefs[i].begin("train_with_pause", args{"ps": "/job:" + set, "at": 30})
		chiefs[i].event("half-way")
		trysts[i].signal(syscall.SIGSTOP)
		chiefs[i].reply("")
	}
	<-time.After(15 * time.Second) // the time that the issue of this test names
	for i, set := range sets {
		trysts[i].signal(syscall.SIGCONT)
		wantNear(t, set, chiefs[i].result().Value, want, map[string]float64{"go": 1e-5, "tensorflow": 1e-6}[set])
	}
}

// metric returns the value of a metric of the server.
func (s *trystTask) metric(t testing.TB, name string) float64 {
	return (&testbed{t: t, registry: s.registry}).metric(name, "")
}

// untilMetric waits until a metric of a server has a value.
func untilMetric(t testing.TB, s *trystTask, name string, want float64) {
	t.Helper()
	(&testbed{t: t, registry: s.registry}).until(fmt.Sprintf("%s of %v", name, want), func() bool { return s.metric(t, name) == want })
}
