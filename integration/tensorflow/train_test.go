//go:build interop

package tensorflow_test

import (
	"fmt"
	"math"
	"testing"
)

// TestTrain: TensorFlow trains a model whose variables are on a Tryst ps, with the losses of the
// same training with a TensorFlow ps.
func TestTrain(t *testing.T) {
	t.Parallel()
	chief := startBoth(t)
	tolerance := map[string]float64{"go": 1e-5, "tensorflow": 1e-6}
	for _, optimizer := range []string{"adam", "sgd", "momentum", "nesterov", "adagrad"} {
		for _, variables := range []string{"ref", "resource"} {
			t.Run(optimizer+", "+variables+" variables", func(t *testing.T) {
				a := args{"ps": "/job:tf", "optimizer": optimizer, "variables": variables}
				want := chief.in(t).value("train", a)
				for _, set := range sets {
					t.Run(set, func(t *testing.T) {
						a["ps"] = "/job:" + set
						wantNear(t, "", chief.in(t).value("train", a), want, tolerance[set])
					})
				}
			})
		}
	}
}

// wantNear compares two values of programs. Numbers may differ by a relative tolerance.
func wantNear(t testing.TB, at string, got, want any, tolerance float64) {
	t.Helper()
	switch want := want.(type) {
	case float64:
		if g, ok := got.(float64); !ok || !near(g, want, tolerance) {
			t.Errorf("%s: got %v, want %v", at, got, want)
		}
	case []any:
		g, ok := got.([]any)
		if !ok || len(g) != len(want) {
			t.Errorf("%s: got %v, want %d values", at, got, len(want))
			return
		}
		for i := range want {
			wantNear(t, fmt.Sprintf("%s[%d]", at, i), g[i], want[i], tolerance)
		}
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok || len(g) != len(want) {
			t.Errorf("%s: got %v, want %v", at, got, want)
			return
		}
		for k := range want {
			wantNear(t, at+"."+k, g[k], want[k], tolerance)
		}
	default:
		if got != want {
			t.Errorf("%s: got %v, want %v", at, got, want)
		}
	}
}

func near(a, b, tolerance float64) bool {
	return a == b || math.Abs(a-b) <= tolerance*math.Max(math.Abs(a), math.Abs(b))
}
