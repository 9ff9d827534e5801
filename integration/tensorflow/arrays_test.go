//go:build interop

package tensorflow_test

import "testing"

// TestStacksAndArraysAsInTensorFlow: each step with a stack, a TensorArray or a TensorList of a Tryst task gives what it gives on a task of
// TensorFlow, or fails with the same code and text.
func TestStacksAndArraysAsInTensorFlow(t *testing.T) {
	chief := startBoth(t)
	for _, part := range []string{"arrays", "stacks", "lists"} {
		t.Run(part, func(t *testing.T) {
			compareSteps(t, chief, "objects_of_steps", args{"part": part})
		})
	}
}

// TestGradientsOfLoops: loops of TensorFlow 1 and 2 over variables, their gradients and what they are trained to are the same on a task
// of Tryst and on one of TensorFlow: recurrent layers with a loop in a loop, and with rows in arrays.
func TestGradientsOfLoops(t *testing.T) {
	chief := startBoth(t)
	for _, kind := range []string{"ref", "resource", "arrays", "dynamic", "concat", "gather", "resource v2", "arrays v2"} {
		t.Run(kind, func(t *testing.T) {
			const program = "loop_gradient"
			a := args{"kind": kind}
			want := onJob(chief.in(t), program, "tf", a)
			if want.Value == nil {
				t.Fatalf("TensorFlow: %v %s", want.Code, want.Message)
			}
			for _, set := range sets {
				t.Run(set, func(t *testing.T) {
					got := onJob(chief.in(t), program, set, a)
					if got.Value == nil {
						t.Fatalf("%v %s", got.Code, got.Message)
					}
					wantNear(t, "", got.Value, want.Value, 1e-4)
				})
			}
		})
	}
}
