package grpctransport

import (
	"testing"

	"google.golang.org/protobuf/proto"

	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/tensortest"
	"github.com/tryst-rdma/tryst/transport"
)

// TestDecodeInto: a message of any form, also one with a list of values as TensorFlow sends it,
// brings its content into the receiver's memory. One that does not fit is refused, and a dead
// value leaves the memory as it was; nothing is kept of either.
func TestDecodeInto(t *testing.T) {
	usual := &tfpb.TensorProto{Dtype: tfpb.DataType_DT_FLOAT, TensorContent: []byte{0, 0, 128, 63, 0, 0, 0, 64}}
	usual.TensorShape = &tfpb.TensorShapeProto{Dim: []*tfpb.TensorShapeProto_Dim{{Size: 2}}}
	list := &tfpb.TensorProto{Dtype: tfpb.DataType_DT_FLOAT, TensorShape: usual.GetTensorShape(), FloatVal: []float32{1, 2}}
	for name, c := range map[string]struct {
		resp *tfpb.RecvTensorResponse
		dims int
		want []float32
		code status.Code
		dead bool
	}{
		"content":            {resp: &tfpb.RecvTensorResponse{Tensor: usual}, dims: 2, want: []float32{1, 2}},
		"values":             {resp: &tfpb.RecvTensorResponse{Tensor: list}, dims: 2, want: []float32{1, 2}},
		"content, no fit":    {resp: &tfpb.RecvTensorResponse{Tensor: usual}, dims: 3, want: []float32{9, 9, 9}, code: status.InvalidArgument},
		"values, no fit":     {resp: &tfpb.RecvTensorResponse{Tensor: list}, dims: 1, want: []float32{9}, code: status.InvalidArgument},
		"dead":               {resp: &tfpb.RecvTensorResponse{Tensor: usual, IsDead: true}, dims: 2, want: []float32{9, 9}, dead: true},
		"dead, no tensor":    {resp: &tfpb.RecvTensorResponse{IsDead: true}, dims: 2, want: []float32{9, 9}, dead: true},
		"dead, would not do": {resp: &tfpb.RecvTensorResponse{Tensor: list, IsDead: true}, dims: 5, want: []float32{9, 9, 9, 9, 9}, dead: true},
	} {
		t.Run(name, func(t *testing.T) {
			b, err := proto.Marshal(c.resp)
			if err != nil {
				t.Fatal(err)
			}
			alloc := tensortest.NewAllocator(t)
			dst, err := tensor.Allocate(alloc, tensor.Float32, tensor.Vector(c.dims))
			if err != nil {
				t.Fatal(err)
			}
			defer dst.Release()
			values, err := tensor.Values[float32](dst)
			if err != nil {
				t.Fatal(err)
			}
			for i := range values {
				values[i] = 9
			}
			into, err := rendezvous.NewInto(dst)
			if err != nil {
				t.Fatal(err)
			}
			r := received{alloc: alloc, t: &transport.Receive{Into: into}}
			for range 2 { // gRPC may parse twice
				r.parse(split(b, 3, 5, 7))
				if status.CodeOf(r.err) != c.code || r.Dead != c.dead {
					t.Fatalf("dead %v, %v; want %v, %v", r.Dead, r.err, c.dead, c.code)
				}
			}
			for i, v := range values {
				if v != c.want[i] {
					t.Errorf("the memory has %v, want %v", values, c.want)
					break
				}
			}
			if c.code == status.OK && !c.dead && r.Tensor != dst {
				t.Errorf("the tensor is %v, and not the receiver's", r.Tensor)
			}
			r.release()
			if !dst.Buffer().Unique() {
				t.Error("the memory has another reference")
			}
		})
	}
}
