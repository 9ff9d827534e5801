//go:build interop

package tensorflow_test

import "testing"

// TestTablesAsInTensorFlow: each step with a lookup table of a Tryst task gives what it gives on a task of TensorFlow, or
// fails with the same code and text, in both versions of the ops.
func TestTablesAsInTensorFlow(t *testing.T) {
	chief := startBoth(t)
	for _, part := range []string{"fixed", "mutable", "rows", "wrong"} {
		for _, version := range []string{"", "V2"} {
			t.Run(part+version, func(t *testing.T) {
				compareSteps(t, chief, "lookups", args{"part": part, "version": version})
			})
		}
	}
}

// TestATableThere: a program with a vocabulary and a table of counts on a task.
func TestATableThere(t *testing.T) {
	chief := startBoth(t)
	want := onJob(chief.in(t), "static_table", "tf", nil)
	for _, set := range sets {
		got := onJob(chief.in(t), "static_table", set, nil)
		if want.Value == nil || got.Code != want.Code {
			t.Fatalf("%s: got %v %s, TensorFlow %v %s", set, got.Code, got.Message, want.Code, want.Message)
		}
		wantNear(t, "", got.Value, want.Value, 0)
	}
}
