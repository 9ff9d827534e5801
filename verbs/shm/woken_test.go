package shm

import "testing"

// TestWakeThatAnotherGoroutineReadsReachesRun: the peer wakes this side once for each sleep. Whoever
// works on the rings in place of run may read the packet, and then run, which still sleeps, must be
// woken, or both sides wait for each other.
func TestWakeThatAnotherGoroutineReadsReachesRun(t *testing.T) {
	for _, runner := range []bool{false, true} {
		l := &link{nudges: make(chan struct{}, 1), self: make(chan struct{}, 1)}
		q := new(qp)
		q.runner = runner
		q.handlePacket(l, []byte{kindWake}, -1)
		if nudged := q.nudged.Load() && len(l.self) == 1; nudged == runner {
			t.Errorf("the packet was read by run %v: it is woken %v", runner, nudged)
		}
	}
}
