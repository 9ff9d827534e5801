package verbs

import (
	"fmt"
	"testing"
)

func TestWithoutQPNs(t *testing.T) {
	for text, want := range map[string]string{
		fmt.Sprintf("channel, generation 3: QP %v: flushed (0x0000f9)", QPN(0x8c3dd6)): "channel, generation 3: QP: flushed (0x0000f9)",
		Endpoint{QPN: 7, GID: GID{15: 1}}.String():                                     "QP at GID 0000:0000:0000:0000:0000:0000:0000:0001",
		"queue pair 0x000012 is that of another rail":                                  "queue pair is that of another rail",
		"nothing": "nothing",
	} {
		if got := WithoutQPNs(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
