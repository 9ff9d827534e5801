package grpctransport

import (
	"bytes"
	"encoding/hex"
	"os"
	"strings"
	"testing"

	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/transport"
)

// protocolExample returns the bytes of an example in PROTOCOL.md.
func protocolExample(t *testing.T, name string) []byte {
	t.Helper()
	doc, err := os.ReadFile("../../PROTOCOL.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(doc), "```hex "+name+"\n")
	text, _, end := strings.Cut(rest, "```")
	if !ok || !end {
		t.Fatalf("PROTOCOL.md has no hex block %s", name)
	}
	b, err := hex.DecodeString(strings.Join(strings.Fields(text), ""))
	if err != nil {
		t.Fatalf("PROTOCOL.md, %s: %v", name, err)
	}
	return b
}

func TestProtocolRecvTensorResponse(t *testing.T) {
	x, err := tensor.FromSlice(tensor.Vector(2), []float32{1, -2})
	if err != nil {
		t.Fatal(err)
	}
	r, err := encodeResponse(&transport.TensorResponse{Tensor: x, SendStartMicros: 1_234_567})
	if err != nil {
		t.Fatal(err)
	}
	data := r.takeBuffers()
	defer data.Free()
	if got, want := data.Materialize(), protocolExample(t, "recv-tensor-response"); !bytes.Equal(got, want) {
		t.Errorf("written:\n%x\nPROTOCOL.md section 3:\n%x", got, want)
	}
}
