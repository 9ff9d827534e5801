package server

import (
	"context"
	"testing"

	"github.com/tryst-rdma/tryst/internal/checkpoint"
	"github.com/tryst-rdma/tryst/tensor"
)

// TestPiecesAreNotCopied: the pieces of a large tensor leave from the registered memory that it was
// published in, and the device writes them into the registered memory of the whole tensor, without a
// copy on either side.
func TestPiecesAreNotCopied(t *testing.T) {
	w := newVerbsTown(t, 1)
	s := w.start(0)
	x := filledTensor(t, s.SendAllocator(), 11<<20, 7)
	defer x.Release()
	if _, err := s.Catalog().PublishTensors(t.Context(), "p", x.Named("x")); err != nil {
		t.Fatal(err)
	}
	cfg := w.settings(0).ForClient()
	cfg.Cluster, cfg.Transport, cfg.Fallback = nil, "verbs", "none"
	cfg.RDMA.ArenaLimit = 256 << 20
	cl, err := Dial(t.Context(), cfg, s.Addr().String(), Options{Provider: w.provider(1)})
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close(context.Background())
	own := filledTensor(t, cl.Allocator(), 11<<20, 0)
	defer own.Release()
	for _, into := range []map[string]*tensor.Tensor{nil, {"x": own}} {
		var sum checkpoint.Summary
		for got, err := range cl.Puller().Pull(t.Context(), checkpoint.PullRequest{Into: into, Summary: &sum}) {
			if err != nil {
				t.Fatal(err)
			}
			if !tensor.Equal(got, x) || !cl.Registered(got) {
				t.Errorf("the tensor has another content, or is not registered: %v", cl.Registered(got))
			}
			if k := cl.rdma.Transport.Memory().Receiving.Buffers; k > 2 {
				t.Errorf("%d buffers of registered memory are in use, beside the tensor and the caller's", k)
			}
			got.Release()
		}
		if sum.Over("verbs") != 1 || sum.Over("grpc") != 0 || sum.Carried[0].Attempts != 3 {
			t.Errorf("it came so: %+v", sum.Carried)
		}
	}
	if n := s.rdma.Transport.Memory().CopiedBytes; n > 0 {
		t.Errorf("%d bytes were copied to be sent", n)
	}
}
