//go:build interop

package tensorflow_test

import (
	"fmt"
	"testing"
)

// TestOptimisersOfTheKernelSetGo trains with variables on a Tryst ps, with the losses of the same training with
// a TensorFlow ps: a dense model, an embedding, and one with rows of one element, as linear models have.
func TestOptimisersOfTheKernelSetGo(t *testing.T) {
	t.Parallel()
	chief := startBoth(t)
	for _, optimizer := range []string{
		"ftrl", "ftrl shrinkage", "adadelta", "rmsprop", "centered rmsprop", "proximal sgd", "proximal adagrad", "adagrad dual averaging",
	} {
		for _, variables := range []string{"ref", "resource"} {
			for program, a := range map[string]args{
				"train": {"steps": 50}, "embedding": {"width": 8}, "embedding of width 1": {"width": 1},
			} {
				t.Run(fmt.Sprint(optimizer, ", ", variables, ", ", program), func(t *testing.T) {
					if a["width"] != nil {
						program = "embedding"
					}
					a["optimizer"], a["variables"], a["ps"] = optimizer, variables, "/job:tf"
					want := chief.in(t).value(program, a)
					a["ps"] = "/job:go"
					wantNear(t, "", chief.in(t).value(program, a), want, 1e-5)
				})
			}
		}
	}
}
