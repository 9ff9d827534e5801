package delivery

import (
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/transport"
)

// TestNumbersAreThoseOfTheContract (ARCHITECTURE.md section 6, PROTOCOL.md section 5). The other
// tests use the names of the constants, so they would pass after a change.
func TestNumbersAreThoseOfTheContract(t *testing.T) {
	for name, c := range map[string]struct{ is, want time.Duration }{
		"a peer out of reach":                    {transport.DefaultPeerTimeout, 10 * time.Second},
		"responses for an unreachable requester": {expireAfter, time.Minute},
		"ids that may have copies under way":     {rememberFor, 10 * time.Minute},
		"acks with no request":                   {ackDelay, 5 * time.Millisecond},
		"acks for which much memory is kept":     {ackSoon, 200 * time.Microsecond},
	} {
		if c.is != c.want {
			t.Errorf("%s: %v, want %v", name, c.is, c.want)
		}
	}
	if transport.DefaultKeptPerRequester != 1<<30 || DefaultAckBytes != 64<<20 || maxAcksOfRequest != 128 {
		t.Errorf("%d bytes are kept for a requester, %d are acknowledged soon, %d acks go with a request; want 1 GiB, 64 MiB, 128", transport.DefaultKeptPerRequester, DefaultAckBytes, maxAcksOfRequest)
	}
}
