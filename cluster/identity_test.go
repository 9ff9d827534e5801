package cluster_test

import (
	"math"
	"testing"

	"github.com/tryst-rdma/tryst/cluster"
)

func TestNewIncarnation(t *testing.T) {
	seen := make(map[uint64]bool)
	var bits uint64
	for range 1000 {
		n := cluster.NewIncarnation()
		if n == 0 || seen[n] {
			t.Fatalf("incarnation %#x after %d others, want a new one that is not 0", n, len(seen))
		}
		seen[n] = true
		bits |= n
	}
	if bits != math.MaxUint64 {
		t.Errorf("bits %#x were never set, want all 64 used", ^bits)
	}
}

func TestClientTask(t *testing.T) {
	bits := 0
	for range 1000 {
		task := cluster.ClientTask()
		if parsed, err := cluster.ParseTask(task.String()); err != nil || parsed != task || task.Job != "client" || task.Replica != 0 {
			t.Fatalf("ClientTask() = %v, which parses to %v, %v; want a task of job client, replica 0", task, parsed, err)
		}
		bits |= task.Index
	}
	if bits != math.MaxInt32 {
		t.Errorf("the task numbers use the bits %#x, want all 31", bits)
	}
}
