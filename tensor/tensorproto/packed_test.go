package tensorproto

import (
	"bytes"
	"runtime"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

func inField(number protowire.Number, b []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), b)
}

// TestListsInPartsAreRefused: the parser would copy them with the square of the parts.
func TestListsInPartsAreRefused(t *testing.T) {
	const n = 20_000 // 1.6 GB
	list := append([]byte{0x08, 9, 0x12, 0}, bytes.Repeat(inField(fieldInt64s, []byte{1}), n)...)
	variant := append([]byte{0x08, 21, 0x12, 0}, inField(fieldVariants, inField(fieldVariantTensors, list))...)
	element := inField(fieldVariantTensors, list)
	content := protowire.AppendVarint(nil, uint64(len(element)))
	content = append(content, element...)
	for name, b := range map[string][]byte{
		"a list": list, "a list in a variant": variant,
		"a variant as content": append([]byte{0x08, 21, 0x12, 0}, inField(fieldContent, content)...),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := Unmarshal(b, tensor.Heap{})
		runtime.ReadMemStats(&after)
		if status.CodeOf(err) != status.InvalidArgument || !strings.Contains(err.Error(), "parts") || after.TotalAlloc-before.TotalAlloc > 10<<20 {
			t.Errorf("%s: %v, %d bytes were allocated", name, err, after.TotalAlloc-before.TotalAlloc)
		}
	}
	some := append([]byte{0x08, 9, 0x12, 4, 0x12, 2, 0x08, 3}, bytes.Repeat(inField(fieldInt64s, []byte{1}), 3)...)
	x, err := Unmarshal(some, tensor.Heap{})
	if err != nil {
		t.Fatalf("three parts: %v", err)
	}
	x.Release()
}

func TestTensorsNestedTooDeepAreRefused(t *testing.T) {
	var b []byte
	for range maxDepth {
		b = inField(fieldVariants, inField(fieldVariantTensors, b))
	}
	if _, err := Unmarshal(append([]byte{0x08, 21, 0x12, 0}, b...), tensor.Heap{}); status.CodeOf(err) != status.InvalidArgument || !strings.Contains(err.Error(), "deep") {
		t.Error(err)
	}
}
