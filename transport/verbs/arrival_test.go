package verbstransport_test

import (
	"testing"

	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/transport"
	verbstransport "github.com/tryst-rdma/tryst/transport/verbs"
)

// arrival waits for the value and returns how it came.
func (r *receiving) arrival() rendezvous.Arrival {
	r.s.Helper()
	o := r.wait()
	if o.err != nil {
		r.s.Fatalf("receive of %s: %v", r.key.Edge(), o.err)
	}
	defer o.value.Tensor.Release()
	a := o.value.Arrival()
	if a.Duration <= 0 {
		r.s.Errorf("receive of %s: it has taken %v", r.key.Edge(), a.Duration)
	}
	a.Duration = 0
	return a
}

// TestArrivalOverVerbs: a value that has come over a channel says so, whatever message brought
// it, and names the device.
func TestArrivalOverVerbs(t *testing.T) {
	log := transport.NewLog(10, nil)
	s := newStage(t, tuned(clusterOptions{}, func(o *verbstransport.Options) { o.Transfers = log }))
	from, to := s.pair()
	for i, size := range []int{0, 8, 100 * kib, mib} {
		k := from.key(to, "v")
		from.sendsBlob(1, k, uint64(i), size)
		want := rendezvous.Arrival{Transport: "verbs", Device: "mem0", Bytes: int64(size), Attempts: 1}
		if got := to.recv(1, k).arrival(); got != want {
			t.Errorf("%d bytes: got %+v, want %+v", size, got, want)
		}
	}
	for _, l := range log.Transfers() {
		if l.Transport != "verbs" || l.Device != "mem0" {
			t.Errorf("the log has %+v", l)
		}
	}
}

// TestArrivalOfAContentThatBeganOverVerbs: a content that was half written when its channel broke
// comes over gRPC. Its record names gRPC, and counts the request over verbs.
func TestArrivalOfAContentThatBeganOverVerbs(t *testing.T) {
	s := newStage(t, quick(clusterOptions{}))
	from, to := s.pair()
	k := from.key(to, "v")
	stuck := s.oneWay(from, to).HoldAfter(300 * kib)
	from.sendsBlob(1, k, 1, mib)
	r := to.recv(1, k)
	s.happens("the transfer is under way", stuck)
	s.cut(from, to)
	want := rendezvous.Arrival{Transport: "grpc", Bytes: mib, Attempts: 2}
	if got := r.arrival(); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	s.wires(from, to).Release().Restore()
	from.meets(to)
}

// TestArrivalWithoutRegisteredMemory: a receive that falls back although the channel is up names
// gRPC.
func TestArrivalWithoutRegisteredMemory(t *testing.T) {
	s := newStage(t, quick(clusterOptions{}, func(o *verbstransport.Options) { o.Memory.Arena, o.Memory.RecvLimit = mib, mib }))
	from, to := s.pair()
	k := from.key(to, "v")
	from.sendsBlob(1, k, 1, 2*mib)
	want := rendezvous.Arrival{Transport: "grpc", Bytes: 2 * mib, Attempts: 2}
	if got := to.recv(1, k).arrival(); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
