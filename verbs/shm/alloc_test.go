//go:build linux && !race

package shm

import (
	"testing"

	"github.com/tryst-rdma/tryst/verbs"
)

// TestMessagesAllocateNothing: neither a post nor the execution of a request allocates.
func TestMessagesAllocateNothing(t *testing.T) {
	x, y := newPair(t, New(Options{}), 1<<20)
	send := []verbs.SendWR{x.to(y, 1, verbs.OpWriteImm, 0, 4096, 0), x.to(y, 1, verbs.OpSend, 0, 8, 0)}
	recv := []verbs.RecvWR{{ID: 1}, {ID: 1, SGL: []verbs.SGE{{Addr: y.mr.Addr(), Length: 64, LKey: y.mr.LKey()}}}}
	exchange := func() {
		if n, err := y.qp.PostRecv(recv); n != 2 || err != nil {
			t.Fatal(n, err)
		}
		if n, err := x.qp.PostSend(send); n != 2 || err != nil {
			t.Fatal(n, err)
		}
		for range 2 {
			if wc := y.polled(); wc.Status != verbs.StatusOK {
				t.Fatalf("%+v", wc)
			}
			if wc := x.polled(); wc.Status != verbs.StatusOK {
				t.Fatalf("%+v", wc)
			}
		}
	}
	for range 300 { // queues grow, descriptors are passed
		exchange()
	}
	// Timers of goroutines that look whether somebody still polls, and wakes, allocate a little.
	if n := testing.AllocsPerRun(2000, exchange); n >= 1 {
		t.Errorf("%v allocations for two messages", n)
	}
}
