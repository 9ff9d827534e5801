package metrics

import (
	"fmt"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/tryst-rdma/tryst/verbs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestLabelsHaveNoGeneration: each text is a series, and each channel has another generation.
func TestLabelsHaveNoGeneration(t *testing.T) {
	if got := Label("channel to /job:worker/replica:0/task:1, generation 17: it broke"); got != "channel to /job:worker/replica:0/task:1, generation N: it broke" {
		t.Errorf("%q", got)
	}
}

// TestLabelsHaveNoQPN: as package verbs writes them.
func TestLabelsHaveNoQPN(t *testing.T) {
	for _, text := range []string{fmt.Sprintf("QP %v: flushed", verbs.QPN(0x8c3dd6)), verbs.Endpoint{QPN: 0x8c3dd6}.String()} {
		if got := Label(text); !strings.Contains(text, "8c3dd6") || strings.Contains(got, "8c3dd6") {
			t.Errorf("%q is %q in a label", text, got)
		}
	}
}
