package handshake

import (
	"testing"
	"time"
)

// TestTimesAreThoseOfTheContract (PROTOCOL.md section 9): the other tests use them by their
// names, so that a change of one of them would pass unseen.
func TestTimesAreThoseOfTheContract(t *testing.T) {
	if OfferLife != 30*time.Second || HelloWait != 10*time.Second {
		t.Errorf("an offer lives for %v, want 30 s, and waits for HELLO for %v, want 10 s", OfferLife, HelloWait)
	}
}
