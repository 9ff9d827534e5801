package worker

import (
	"strconv"
	"testing"

	"github.com/tryst-rdma/tryst/internal/growthtest"
)

// TestOutputsAreParsedInLinearTime: a request may name a million outputs, and holds its session
// meanwhile.
func TestOutputsAreParsedInLinearTime(t *testing.T) {
	growthtest.Check(t, 2000, func(n int) func() {
		names := make([]string, n)
		for i := range names {
			names[i] = inside("output" + strconv.Itoa(i))
		}
		return func() {
			if o, err := outputsOf(names); err != nil || len(o.keys) != n {
				t.Fatal(len(o.keys), err)
			}
		}
	})
}
