package checkpoint

import (
	"bytes"
	"os"
	"strconv"
	"testing"

	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/safetensors"
)

// writeSeeded writes a file with more tensors than are read at once, whose content depends on the seed alone.
func writeSeeded(t *testing.T, path string, seed byte) string {
	t.Helper()
	const each = 4000
	var specs []safetensors.Spec
	for n := range 4 * maxReaders {
		specs = append(specs, safetensors.Spec{Name: "tensor" + strconv.Itoa(n), DType: tensor.Uint8, Shape: tensor.Vector(each)})
	}
	var b bytes.Buffer
	if _, err := safetensors.NewWriter(&b, specs, nil); err != nil {
		t.Fatal(err)
	}
	for n := range specs {
		b.Write(bytes.Repeat([]byte{byte(n), seed}, each/2))
	}
	if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil { //nolint:gosec // as any file
		t.Fatal(err)
	}
	return path
}
