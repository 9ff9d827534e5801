package delivery

import (
	"testing"
	"time"
)

// TestNumbersAreThoseOfTheContract (ARCHITECTURE.md section 6, PROTOCOL.md section 5): the other
// tests use them by their names, so that a change of one of them would pass unseen.
func TestNumbersAreThoseOfTheContract(t *testing.T) {
	for name, c := range map[string]struct{ is, want time.Duration }{
		"a peer out of reach":                        {DefaultPeerTimeout, 10 * time.Second},
		"answers of an asker without a wire":         {expireAfter, time.Minute},
		"ids that may have copies under way":         {rememberFor, 10 * time.Minute},
		"finished ids with no request":               {ackDelay, 5 * time.Millisecond},
		"finished ids for which much memory is kept": {ackSoon, 200 * time.Microsecond},
	} {
		if c.is != c.want {
			t.Errorf("%s: %v, want %v", name, c.is, c.want)
		}
	}
	if DefaultKeptPerRequester != 1<<30 || DefaultAckBytes != 64<<20 || maxAcksOfRequest != 128 {
		t.Errorf("%d bytes are kept for an asker, %d are much, %d ids ride; want 1 GiB, 64 MiB, 128", DefaultKeptPerRequester, DefaultAckBytes, maxAcksOfRequest)
	}
}
