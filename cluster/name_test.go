package cluster_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/tryst-rdma/tryst/cluster"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestParseDeviceForms(t *testing.T) {
	want := cluster.Device{Task: cluster.Task{Job: "mnist", Replica: 1, Index: 2}, Type: "CPU"}
	for _, s := range []string{"/job:mnist/replica:1/task:2/device:CPU:0", "/job:mnist/replica:1/task:2/CPU:0", "/job:mnist/replica:1/task:2/cpu:0"} {
		got, err := cluster.ParseDevice(s)
		if err != nil || got != want {
			t.Errorf("ParseDevice(%q) = %v, %v", s, got, err)
		}
		if got.String() != "/job:mnist/replica:1/task:2/device:CPU:0" {
			t.Error(got)
		}
	}
}
