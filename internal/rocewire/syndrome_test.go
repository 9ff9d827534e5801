package rocewire_test

import (
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/internal/rocewire"
)

func TestSyndromes(t *testing.T) {
	for i := range 256 {
		s := rocewire.Syndrome(i)
		ack, rnr, nak := i < 0x20, i >= 0x20 && i < 0x40, i >= 0x60 && i < 0x80
		if s.IsAck() != ack || s.IsRNR() != rnr || s.IsNAK() != nak {
			t.Errorf("0x%02x: ACK %v, RNR %v, NAK %v", i, s.IsAck(), s.IsRNR(), s.IsNAK())
		}
		if s.String() == "" {
			t.Errorf("0x%02x has no name", i)
		}
	}
	for timer := range uint8(32) {
		s := rocewire.RNR(timer)
		if !s.IsRNR() || s.Timer() != timer || s.Delay() != rocewire.RNRDelay(timer) {
			t.Errorf("timer %d: %v, %d", timer, s, s.Timer())
		}
	}
	if rocewire.RNR(33) != rocewire.RNR(1) {
		t.Error("the timer is not cut to 5 bits")
	}
	for s, want := range map[rocewire.Syndrome]string{
		rocewire.AckUnlimited:       "ACK",
		3:                           "ACK with credit code 3",
		rocewire.RNR(12):            "RNR NAK, 640µs",
		rocewire.NAKSequence:        "NAK: PSN sequence error",
		rocewire.NAKInvalidRequest:  "NAK: invalid request",
		rocewire.NAKRemoteAccess:    "NAK: remote access error",
		rocewire.NAKRemoteOperation: "NAK: remote operational error",
		0x64:                        "NAK: code 4",
		0x45:                        "syndrome 0x45",
		0xff:                        "syndrome 0xff",
	} {
		if s.String() != want {
			t.Errorf("0x%02x is called %q, want %q", uint8(s), s, want)
		}
	}
}

// TestRNRDelays checks the table by its rule: from code 2 on, each pair of codes is 2
// and 3 units, then twice that (specification, volume 1, table 45).
func TestRNRDelays(t *testing.T) {
	const unit = 10 * time.Microsecond
	if rocewire.RNRDelay(0) != 65536*unit || rocewire.RNRDelay(1) != unit {
		t.Errorf("0 is %v, 1 is %v", rocewire.RNRDelay(0), rocewire.RNRDelay(1))
	}
	for timer := uint8(2); timer < 32; timer++ {
		if want := unit * time.Duration(2+timer%2) << (timer/2 - 1); rocewire.RNRDelay(timer) != want {
			t.Errorf("%d is %v, want %v", timer, rocewire.RNRDelay(timer), want)
		}
	}
}
