package delta

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/tryst-rdma/tryst/internal/protocoltest"
)

// TestProtocolExample makes and applies the delta that PROTOCOL.md section 13 shows.
func TestProtocolExample(t *testing.T) {
	old := make([]byte, 300_000)
	new := bytes.Clone(old)
	binary.LittleEndian.PutUint16(new[262_144+2*5:], 4)
	binary.LittleEndian.PutUint16(new[262_144+2*7:], 12)
	p := Pair{Old: old, New: new, Unit: 2, Base: digest(old), Result: digest(new)}
	want := protocoltest.Example(t, "delta")
	if got, made := newEncoder(t).Encode(nil, p, 0); !bytes.Equal(got, want) {
		t.Errorf("the delta of the example is % x (%v)", got, made.Method)
	}
	to, _ := target(p, false)
	if err := newApplier(t).Apply(to, want); err != nil || !bytes.Equal(to.Dst, new) {
		t.Errorf("the example: %v", err)
	}
}
