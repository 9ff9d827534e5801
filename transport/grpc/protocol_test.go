package grpctransport

import (
	"bytes"
	"testing"

	"github.com/tryst-rdma/tryst/internal/protocoltest"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/transport"
)

func TestProtocolRecvTensorResponse(t *testing.T) {
	x, err := tensor.FromSlice(tensor.Vector(2), []float32{1, -2})
	if err != nil {
		t.Fatal(err)
	}
	r, err := encodeResponse(&transport.TensorResponse{Tensor: x, SendStartMicros: 1_234_567}, charge{})
	if err != nil {
		t.Fatal(err)
	}
	data := r.takeBuffers()
	defer data.Free()
	if got, want := data.Materialize(), protocoltest.Example(t, "recv-tensor-response"); !bytes.Equal(got, want) {
		t.Errorf("written:\n%x\nPROTOCOL.md section 3:\n%x", got, want)
	}
}
