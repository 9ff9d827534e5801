package server

import (
	"testing"

	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/tryst-rdma/tryst/internal/checkpoint"
)

// TestProbesAndListsDoNotKeepTheHeap: a probe that comes every ten seconds would put off the release of
// the heap for ever.
func TestProbesAndListsDoNotKeepTheHeap(t *testing.T) {
	s := publisher(t, "127.0.0.1:0", checkpointFile(t, false))
	if _, err := healthpb.NewHealthClient(dialPlainly(t, s.Addr().String())).Check(t.Context(), &healthpb.HealthCheckRequest{}); err != nil {
		t.Fatal(err)
	}
	c := dial(t, Config{}, s.Addr().String())
	if _, err := c.Puller().List(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s.heap.Pending() {
		t.Error("calls without tensors are a use")
	}
	for x, err := range c.Puller().Pull(t.Context(), checkpoint.PullRequest{}) {
		if err != nil {
			t.Fatal(err)
		}
		x.Release()
	}
	if !s.heap.Pending() {
		t.Error("a pull is no use")
	}
}

// TestSendingOverVerbsReleasesTheHeap: responses over a channel come with no call of gRPC, and the
// tensors of a process that only sends may be on its heap.
func TestSendingOverVerbsReleasesTheHeap(t *testing.T) {
	w := newVerbsTown(t, 2)
	from, to := w.start(0), w.start(1)
	w.up(to, from.Task())
	w.exchange(1, from, to, 7)
	if got := to.Received(); got["verbs"] != 1 {
		t.Fatalf("received over %v", got)
	}
	if !from.heap.Pending() {
		t.Error("nothing releases the heap of the sender")
	}
}
