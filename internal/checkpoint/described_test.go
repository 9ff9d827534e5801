package checkpoint

import (
	"testing"

	"github.com/tryst-rdma/tryst/cluster"
	trystpb "github.com/tryst-rdma/tryst/internal/proto/tryst"
	"github.com/tryst-rdma/tryst/tensor"
)

// TestManifestIsDescribedOnce: a manifest may have millions of tensors, and any number of calls
// may ask for it.
func TestManifestIsDescribedOnce(t *testing.T) {
	c, err := NewCatalog(CatalogOptions{Device: cluster.Device{Task: cluster.Task{Job: "worker"}, Type: "CPU"}, Incarnation: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	x, err := tensor.FromBytes(tensor.Uint8, tensor.Vector(1), []byte{1})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Release()
	pub, err := c.PublishTensors(t.Context(), "p", x.Named("x"))
	if err != nil {
		t.Fatal(err)
	}
	s := &service{catalog: c}
	var got [2]*trystpb.DescribeResponse
	for i := range got {
		if got[i], err = s.Describe(t.Context(), &trystpb.DescribeRequest{Publication: "p"}); err != nil {
			t.Fatal(err)
		}
	}
	if got[0] != got[1] || got[0].GetPublication().GetVersion() != pub.Version || len(got[0].GetTensors()) != 1 {
		t.Errorf("%v, and then %v", got[0], got[1])
	}
}
