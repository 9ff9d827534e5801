package delivery

import (
	"testing"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/transport"
)

// TestTaskOfARequesterComesAndGoes: its process counts as one with an address, or without; what it has here is dropped
// when it has left, its step is named, and it is refused until it is back.
func TestTaskOfARequesterComesAndGoes(t *testing.T) {
	in, left := false, false
	b := newBench(t, cacheLimits{addressed: func(string) bool { return in }, left: func(string) bool { return left }})
	change := func() map[int64]error {
		steps, acts := b.m.clusterChanged(b.now)
		b.do(acts)
		return steps
	}
	b.up()
	if b.m.unaddressed != 1 {
		t.Fatalf("%d without an address", b.m.unaddressed)
	}
	in = true
	if steps := change(); len(steps) != 0 || b.m.unaddressed != 0 || !b.m.requesters[consumer].addressed {
		t.Errorf("when the task has come: steps %v, %d without an address", steps, b.m.unaddressed)
	}
	b.request(1, 1, 1)
	b.value(1, 'a', 1)
	b.request(2, 1, 2)

	in, left = false, true
	steps := change()
	if len(steps) != 1 || b.m.requesters[consumer] != nil {
		t.Errorf("when it has left: steps %v", steps)
	}
	for _, err := range steps {
		b.wantCode("the error of the step", err, status.Aborted, "has left the cluster")
	}
	introduce := func() error {
		_, acts, err := b.m.introduce(b.now, transport.Process{Name: consumer, Incarnation: 8}, "h")
		b.do(acts)
		return err
	}
	b.wantCode("its process", introduce(), status.Aborted, "has left the cluster")
	_, err := b.m.cancel(b.now, transport.Process{Name: consumer, Incarnation: 8}, []uint64{1})
	b.wantCode("a cancel that goes with a request", err, status.Aborted, "has left the cluster")
	in, left = true, false
	b.wantCode("when it is back", introduce(), status.OK)
}

// TestRequesterOutsideIsRefusedLater: a task that left and was needed by a session is refused when it is not any more.
func TestRequesterOutsideIsRefusedLater(t *testing.T) {
	in, left := true, false
	b := newBench(t, cacheLimits{addressed: func(string) bool { return in }, left: func(string) bool { return left }})
	b.up()
	in = false
	_, acts := b.m.clusterChanged(b.now)
	b.do(acts)
	k := b.m.requesters[consumer]
	if k == nil || !k.outside {
		t.Fatal("it was dropped")
	}
	left = true
	_, acts, err := b.m.introduce(b.now, transport.Process{Name: consumer, Incarnation: k.incarnation}, "h")
	b.do(acts)
	b.wantCode("later", err, status.Aborted)
	if b.m.requesters[consumer] != nil {
		t.Error("its record is still there")
	}
}
