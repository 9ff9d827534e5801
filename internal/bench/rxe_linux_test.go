//go:build rxe

package bench

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/server"
)

// Every benchmark of verbs runs between two devices, beside perftest: a tensor of
// 2 MiB also beside as many queue pairs as it goes over. With -short without the latencies, which take minutes on an emulated processor.
func TestRxeBenchmarks(t *testing.T) {
	devices := rxeDevices(t)
	for name, want := range map[string]int{"verbs-recv": 2 * 2, "verbs-latency": 2 * 2 * 2, "verbs-idle": 1} {
		if testing.Short() && name == "verbs-latency" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			o := smoke(t, name)
			o.Client = server.Config{RDMA: server.RDMA{Device: devices[0], Timeout: 200 * time.Millisecond}}
			o.PeerDevice, o.Transports, o.polls = devices[1], []string{"verbs"}, []string{"event"}
			o.Sizes, o.Inflight, o.Pin = []int64{2 << 20}, []int{2}, true
			rows, err := Run(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			if len(rows) != want {
				t.Errorf("%d rows, want %d", len(rows), want)
			}
			for _, r := range rows {
				if name == "verbs-latency" && (r.Target != 0 || !r.OK) {
					t.Errorf("row %+v has a target", r)
				}
				if !strings.HasPrefix(r.Name, name) || r.Count < 1 || r.Ratio < 0 || r.itself != (r.Transport == "") || r.itself != (r.Provider == "") {
					t.Errorf("row %+v", r)
				}
			}
		})
	}
}

// TestRxeBothTransports: one run measures tensors over gRPC and over verbs, by the settings
// of tryst-bench --transport grpc,verbs.
func TestRxeBothTransports(t *testing.T) {
	devices := rxeDevices(t)
	o := smoke(t, "recv", "verbs-recv")
	o.Client = server.Config{RDMA: server.RDMA{Device: devices[0], Timeout: 200 * time.Millisecond}}
	o.PeerDevice, o.Transports, o.polls = devices[1], []string{"grpc", "verbs"}, []string{"event"}
	o.Sizes, o.Inflight = []int64{1 << 20}, []int{2}
	rows, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	count := make(map[string]int)
	for _, r := range rows {
		if r.Count < 1 {
			t.Errorf("row %+v", r)
		}
		if !r.itself {
			count[r.Transport]++
		}
	}
	t.Logf("\n%v", count)
	if count["grpc"] == 0 || count["verbs"] == 0 {
		t.Errorf("rows by transport: %v", count)
	}
}

func rxeDevices(t *testing.T) []string {
	t.Helper()
	devices := strings.Split(os.Getenv("TRYST_TEST_DEVICES"), ",")
	if len(devices) != 2 {
		t.Fatalf("TRYST_TEST_DEVICES is %q, and must name two devices", os.Getenv("TRYST_TEST_DEVICES"))
	}
	return devices
}
