package checkpoint

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/tryst-rdma/tryst/cluster"
	trystpb "github.com/tryst-rdma/tryst/internal/proto/tryst"
	"github.com/tryst-rdma/tryst/tensor"
)

// TestManifestIsDescribedOnce, and encoded once: a manifest may have millions of tensors, and any number of calls
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
	if got[0] != got[1] || len(got[0].ProtoReflect().GetUnknown()) == 0 || len(got[0].GetTensors()) != 0 {
		t.Errorf("%v, and then %v, which are not one encoding", got[0], got[1])
	}
	b, err := proto.Marshal(got[0])
	if err != nil {
		t.Fatal(err)
	}
	var m trystpb.DescribeResponse
	if err := proto.Unmarshal(b, &m); err != nil || m.GetPublication().GetVersion() != pub.Version || len(m.GetTensors()) != 1 {
		t.Errorf("%v, %v", &m, err)
	}
}
