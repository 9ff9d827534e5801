package verbstransport_test

import (
	"sync/atomic"
	"testing"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	verbstransport "github.com/tryst-rdma/tryst/transport/verbs"
)

// shutAllocator fails while it is shut.
type shutAllocator struct {
	tensor.Allocator
	shut *atomic.Bool
}

func (a shutAllocator) Allocate(n int) (*tensor.Buffer, error) {
	if a.shut.Load() {
		return nil, status.Errorf(status.ResourceExhausted, "no memory for %d bytes", n)
	}
	return a.Allocator.Allocate(n)
}

// TestReceiverWithoutRoomLosesNothing: when a receive without fallback fails for lack of
// any resource, at either side, its value is there for the next receive.
func TestReceiverWithoutRoomLosesNothing(t *testing.T) {
	for _, c := range []struct {
		name  string
		size  int
		plain bool // the value is not in registered memory
		fill  func(from, to *actor, k rendezvous.Key, shut *atomic.Bool) (empty func())
	}{
		{"the receiving pool is full", mib, false, func(from, to *actor, k rendezvous.Key, _ *atomic.Bool) func() {
			from.sendsBlob(1, k, 1, 2*mib)
			full := to.recv(1, k).value()
			return full.Release
		}},
		{"the allocator of the receiver is full", 100, false, func(_, _ *actor, _ rendezvous.Key, shut *atomic.Bool) func() {
			shut.Store(true)
			return func() { shut.Store(false) }
		}},
		{"the sending pool is full", mib, true, func(from, _ *actor, _ rendezvous.Key, _ *atomic.Bool) func() {
			full := from.s.blob(from.transport.Allocator(), 1, 4*mib)
			return full.Release
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var shut atomic.Bool
			s := newStage(t, pinning(clusterOptions{require: true, tune: func(_ cluster.Task, o *verbstransport.Options) {
				o.Memory.Arena, o.Memory.RecvLimit, o.Memory.SendLimit = 2*mib, 2*mib, 4*mib
				o.Allocator = shutAllocator{o.Allocator, &shut}
			}}))
			from, to := s.pair()
			k := from.key(to, "v")
			empty := c.fill(from, to, k, &shut)
			memory := from.transport.Allocator()
			if c.plain {
				memory = s.source
			}
			from.send(2, k, s.blob(memory, 2, c.size))
			for range 3 {
				if o := to.recv(2, k).wait(); status.CodeOf(o.err) != status.ResourceExhausted {
					t.Errorf("got %v, want ResourceExhausted", o.err)
				}
			}
			empty()
			to.recv(2, k).isBlob(2, c.size)
		})
	}
}
