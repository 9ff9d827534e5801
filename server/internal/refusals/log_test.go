package refusals

import (
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/logtest"
	"github.com/tryst-rdma/tryst/status"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func task(index int) cluster.Task { return cluster.Task{Job: "worker", Index: index} }

// TestRefusedNamesAreLoggedOnceAMinute: each refusal is counted, and each caller has one line a minute. Many
// callers have no more than maxCallers together.
func TestRefusedNamesAreLoggedOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := new(logtest.Log)
		r := New(log.Logger())
		lines := func() int { return log.Count("refusing a name") }
		for range 3 {
			r.Request(task(2), status.New(status.PermissionDenied, "why"))
		}
		if n := lines(); n != 1 || log.Count("why") != 1 || log.Count("from=/job:worker/replica:0/task:2") != 1 {
			t.Errorf("%d lines", n)
		}
		time.Sleep(pause)
		r.Request(task(2), status.New(status.PermissionDenied, "why"))
		if n := lines(); n != 2 {
			t.Errorf("a minute later: %d lines", n)
		}
		for i := range 10 * maxCallers {
			r.Request(task(10+i), status.New(status.PermissionDenied, "why"))
		}
		if n := lines(); n != 1+maxCallers || len(r.logged) != maxCallers {
			t.Errorf("of many callers: %d lines, %d are remembered", n, len(r.logged))
		}
	})
}
