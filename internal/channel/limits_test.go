package channel

import (
	"testing"
	"time"
)

// TestTimesAreThoseOfTheContract compares the times with PROTOCOL.md section 8 and ARCHITECTURE.md
// section 4. The other tests use them by name and would not notice a change.
func TestTimesAreThoseOfTheContract(t *testing.T) {
	for name, c := range map[string]struct{ is, want time.Duration }{
		"quarantine":                {quarantineTime, 10 * time.Second},
		"HELLO":                     {helloTime, 10 * time.Second},
		"a probe":                   {probeAfter, time.Second},
		"QUERY":                     {queryAfter, 30 * time.Second},
		"its answer":                {queryTime, 10 * time.Second},
		"BYE":                       {byeTime, time.Second},
		"acks with no request":      {ackDelay, 5 * time.Millisecond},
		"counts that are requested": {CountsDelay, 5 * time.Millisecond},
	} {
		if c.is != c.want {
			t.Errorf("%s: %v, want %v", name, c.is, c.want)
		}
	}
}
