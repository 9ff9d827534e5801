package safetensors_test

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/safetensors"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// file returns a file with the given header text, its length in front.
func file(header, data string) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(b, header...), data...)
}

func open(b []byte) (*safetensors.File, error) {
	return safetensors.Open(bytes.NewReader(b), int64(len(b)))
}

func mustOpen(t testing.TB, b []byte) *safetensors.File {
	t.Helper()
	f, err := open(b)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func golden(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func shape(t testing.TB, dims ...int64) tensor.Shape {
	t.Helper()
	s, err := tensor.NewShape(dims...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// counting returns a tensor whose bytes count up from 0.
func counting(t testing.TB, d tensor.DType, s tensor.Shape) *tensor.Tensor {
	t.Helper()
	x, err := tensor.Allocate(tensor.Heap{}, d, s)
	if err != nil {
		t.Fatal(err)
	}
	for i := range x.Bytes() {
		x.Bytes()[i] = byte(i)
	}
	return x
}

func wantCode(t testing.TB, err error, code status.Code) {
	t.Helper()
	if status.CodeOf(err) != code {
		t.Errorf("got %v, want %v", err, code)
	}
}
