package bench

import (
	"strings"
	"testing"

	"github.com/tryst-rdma/tryst/server"
)

// TestBenchmarksOfTheDeviceInSoftware runs what needs no RDMA of the kernel.
func TestBenchmarksOfTheDeviceInSoftware(t *testing.T) {
	all := map[string]int{"verbs-beside-grpc": 2 * 2 * 2, "verbs-small": 2, "verbs-udp-loop": 2 * 2 * 2}
	for _, call := range stepCalls {
		all["verbs-step-"+call] = rowsOfSteps(nil, call, server.PollEvent)
	}
	for name, want := range all {
		t.Run(name, func(t *testing.T) {
			o := smoke(t, name)
			o.Transports, o.Client.Provider, o.Client.RDMA.Poll = []string{"verbs"}, "roce", server.PollEvent
			rows, err := Run(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			if len(rows) != want {
				t.Errorf("%d rows, want %d", len(rows), want)
			}
			for _, r := range rows {
				if !strings.HasPrefix(r.Name, name) || r.Count < 1 || r.Ratio <= 0 || r.itself != (r.Transport == "") || r.itself != (r.Provider == "") || !r.itself && r.Provider != "roce" {
					t.Errorf("row %+v", r)
				}
			}
		})
	}
	// The others say that they are not for it.
	for _, name := range []string{"verbs-recv", "verbs-latency"} {
		o := smoke(t, name)
		o.Transports, o.Client.Provider = []string{"verbs"}, "roce"
		if rows, err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), "need RDMA of the kernel") || len(rows) != 0 {
			t.Errorf("%s: %d rows, %v", name, len(rows), err)
		}
	}
}
