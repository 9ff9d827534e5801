package growthtest

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestQuadraticWorkIsFound and linear work passes.
func TestQuadraticWorkIsFound(t *testing.T) {
	sink := 0
	work := func(rounds func(n int) int) func(n int) func() {
		return func(n int) func() {
			return func() {
				for i := range rounds(n) {
					sink += i * i
				}
			}
		}
	}
	if linear(t, 1000, work(func(n int) int { return n * n })) {
		t.Error("quadratic work counts as linear")
	}
	if !linear(t, 1_000_000, work(func(n int) int { return n })) {
		t.Error("linear work counts as quadratic")
	}
}
