//go:build interop

package tensorflow_test

import (
	"fmt"
	"testing"
)

// TestQueuesAsInTensorFlow: each step with a queue or an accumulator of a Tryst task gives what it gives on a task
// of TensorFlow, or fails with the same code and text, in both versions of the ops: orders, batches, what
// waits for what, and what a close or the end of a step does to it.
func TestQueuesAsInTensorFlow(t *testing.T) {
	chief := startBoth(t)
	for _, part := range []string{"orders", "padded", "wrong_uses", "waits", "accumulators", "sparse_accumulators", "handles"} {
		for _, version := range []string{"", "V2"} {
			if version == "V2" && (part == "sparse_accumulators" || part == "handles") {
				continue // there is one version
			}
			t.Run(part+version, func(t *testing.T) {
				compareSteps(t, chief, "behaviour", args{"part": part, "version": version})
			})
		}
	}
}

// compareSteps runs a program that returns what its steps gave on a task of TensorFlow and on one of Tryst.
func compareSteps(t *testing.T, chief *python, program string, a args) {
	t.Helper()
	want := onJob(chief.in(t), program, "tf", a)
	steps, ok := want.Value.([]any)
	if !ok || len(steps) == 0 {
		t.Fatalf("TensorFlow: %v %s", want.Code, want.Message)
	}
	got := onJob(chief.in(t), program, "go", a)
	have, _ := got.Value.([]any)
	if len(have) != len(steps) {
		t.Fatalf("%d steps, want %d: %v %s", len(have), len(steps), got.Code, got.Message)
	}
	for i, step := range steps {
		if fmt.Sprint(have[i]) != fmt.Sprint(step) {
			t.Errorf("step %d\ngot  %v\nwant %v", i, have[i], step)
		}
	}
}

// TestQueueRunners: a program whose input comes from queues on a Tryst task, which threads of the client
// fill (start_queue_runners), gets the batches that it gets from a task of TensorFlow, and stops.
func TestQueueRunners(t *testing.T) {
	chief := startBoth(t)
	for _, kind := range []string{"batch", "shuffle"} {
		want := onJob(chief.in(t), "runners", "tf", args{"kind": kind})
		for _, set := range sets {
			t.Run(kind+" "+set, func(t *testing.T) {
				got := onJob(chief.in(t), "runners", set, args{"kind": kind})
				if want.Value == nil || got.Code != want.Code {
					t.Fatalf("got %v %s, TensorFlow %v %s", got.Code, got.Message, want.Code, want.Message)
				}
				wantNear(t, "", got.Value, want.Value, 1e-6)
			})
		}
	}
}
