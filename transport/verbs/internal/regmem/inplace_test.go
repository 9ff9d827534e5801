package regmem

import (
	"errors"
	"testing"

	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/verbs"
)

// TestContentIsRegisteredWhereItLies: a device in software reads content of any memory without a copy, and
// no longer than its source lasts, or the device.
func TestContentIsRegisteredWhereItLies(t *testing.T) {
	m, pd := newMemory(t, small)
	released := 0
	buf := tensor.NewBuffer([]byte("content of the heap"), func() { released++ })
	before, used := len(pd.open), m.Stats(zero).Sending
	first, err := m.InPlace(buf, buf.Bytes()[:7])
	if err != nil {
		t.Fatal(err)
	}
	second, err := m.InPlace(buf, buf.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	buf.Release()
	if mem := pd.at(first.Range, 0); string(mem) != "content" {
		t.Errorf("the device reads %q", mem)
	}
	if pd.at(first.Range, verbs.AccessRemoteRead) != nil || pd.at(first.Range, verbs.AccessLocalWrite) != nil {
		t.Error("peers have rights to it, or the device may write")
	}
	if s := m.Stats(zero); s.Copies != 0 || s.Sending != used {
		t.Errorf("it took memory of the pool: %+v", s)
	}
	first.Release()
	if len(pd.open) != before+1 || released != 0 {
		t.Errorf("%d regions are open; the memory was released %d times", len(pd.open)-before, released)
	}
	if err := m.Detach(); err != nil || len(pd.open) != 0 || released != 0 {
		t.Errorf("Detach: %v; %d regions are open; the memory was released %d times", err, len(pd.open), released)
	}
	second.Release()
	if released != 1 {
		t.Errorf("the memory was released %d times", released)
	}
	if _, err := m.InPlace(buf, []byte{1}); !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("after Detach: %v", err)
	}
}

// TestADeviceThatPinsMemoryRegistersNothingInPlace: that takes as long as the transfer.
func TestADeviceThatPinsMemoryRegistersNothingInPlace(t *testing.T) {
	m, pd := newMemoryOn(t, hardware, small)
	before := pd.asked
	buf := tensor.NewBuffer([]byte("content"), nil)
	defer buf.Release()
	if _, err := m.InPlace(buf, buf.Bytes()); !errors.Is(err, errors.ErrUnsupported) || pd.asked != before {
		t.Errorf("%v; the device registered %d times", err, pd.asked-before)
	}
}
