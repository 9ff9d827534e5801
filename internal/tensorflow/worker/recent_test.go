package worker

import (
	"math/rand/v2"
	"strings"
	"testing"

	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/status"
)

// duplicate tracks id and reports whether it was refused as a duplicate.
func duplicate(t *testing.T, r *recentIDs, id int64) bool {
	t.Helper()
	err := r.track(id, &tfpb.RecvTensorRequest{RequestId: id})
	if err != nil && status.CodeOf(err) != status.Aborted {
		t.Fatalf("id %d: %v", id, err)
	}
	return err != nil
}

func TestQ1IDZeroIsNeverADuplicate(t *testing.T) {
	r := newRecentIDs("RecvTensor", 3)
	for range 5 {
		if duplicate(t, r, 0) {
			t.Fatal("id 0 was refused")
		}
	}
}

func TestQ2ARepeatedIDIsAborted(t *testing.T) {
	r := newRecentIDs("RecvTensor (GrpcWorker)", 3)
	req := &tfpb.RecvTensorRequest{RequestId: 7, RendezvousKey: "the-key"}
	if err := r.track(7, req); err != nil {
		t.Fatal(err)
	}
	err := r.track(7, req)
	if status.CodeOf(err) != status.Aborted {
		t.Fatalf("got %v, want Aborted", err)
	}
	msg := status.From(err).Message()
	if !strings.HasPrefix(msg, "The same RecvTensor (GrpcWorker) request was received twice. ") || !strings.Contains(msg, "the-key") {
		t.Errorf("message %q", msg)
	}
}

func TestQ3UnorderedEviction(t *testing.T) {
	const capacity = 6
	r := newRecentIDs("RecvTensor", capacity)
	ids := make([]int64, capacity+1)
	seen := map[int64]bool{0: true}
	for i := range ids {
		for seen[ids[i]] {
			ids[i] = int64(rand.Uint64())
		}
		seen[ids[i]] = true
		if duplicate(t, r, ids[i]) {
			t.Fatalf("a new id was refused: %d", ids[i])
		}
	}
	for _, id := range ids[1:] {
		if !duplicate(t, r, id) {
			t.Errorf("id %d is within the window and passed", id)
		}
	}
	if duplicate(t, r, ids[0]) {
		t.Error("the oldest id was not evicted")
	}
}

func TestQ4Ordered(t *testing.T) {
	for capacity := 2; capacity <= 5; capacity++ {
		r := newRecentIDs("RecvTensor", capacity)
		for id := int64(1); id <= 100; id++ {
			if duplicate(t, r, id) {
				t.Fatalf("capacity %d: %d was refused", capacity, id)
			}
			for back := max(1, id-int64(capacity)+1); back <= id; back++ {
				if !duplicate(t, r, back) {
					t.Fatalf("capacity %d: after %d, %d was forgotten", capacity, id, back)
				}
			}
		}
	}
}

func TestQ5Window(t *testing.T) {
	r := newRecentIDs("RecvTensor", recentWindow)
	for id := int64(1); id <= recentWindow+1; id++ {
		if duplicate(t, r, id) {
			t.Fatal(id)
		}
	}
	if recentWindow != 100_000 {
		t.Error("TensorFlow's worker remembers 100000")
	}
	if !duplicate(t, r, 2) || duplicate(t, r, 1) {
		t.Error("the window is not 100000 ids")
	}
}
