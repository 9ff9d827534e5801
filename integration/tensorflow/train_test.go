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
	c := newCluster(t, map[string]int{"chief": 1, "ps": 1, "tfps": 1})
	c.startTryst(t, "ps", 0)
	c.startTask(t, "tfps", 0)
	chief := c.startTask(t, "chief", 0)
	for _, test := range []struct{ optimizer, variables string }{
		{"adam", "ref"},
		{"adam", "resource"},
		{"sgd", "ref"},
		{"sgd", "resource"},
		{"momentum", "ref"},
		{"momentum", "resource"},
		{"nesterov", "ref"},
		{"nesterov", "resource"},
		{"adagrad", "ref"},
		{"adagrad", "resource"},
	} {
		t.Run(test.optimizer+", "+test.variables+" variables", func(t *testing.T) {
			chief := chief.in(t)
			a := args{"ps": "/job:tfps", "optimizer": test.optimizer, "variables": test.variables}
			want := chief.value("train", a)
			a["ps"] = "/job:ps"
			wantNear(t, "", chief.value("train", a), want, 1e-5)
		})
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
