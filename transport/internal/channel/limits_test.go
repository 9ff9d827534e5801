package channel

import (
	"testing"
	"time"
)

// TestTimesAreThoseOfTheContract (ARCHITECTURE.md sections 4 and 5): the other tests use them by
// their names, so that a change of one of them would pass unseen.
func TestTimesAreThoseOfTheContract(t *testing.T) {
	for name, c := range map[string]struct{ is, want time.Duration }{
		"quarantine":                   {quarantineTime, 10 * time.Second},
		"HELLO":                        {helloTime, 10 * time.Second},
		"a probe":                      {probeAfter, time.Second},
		"QUERY":                        {queryAfter, 30 * time.Second},
		"its answer":                   {queryTime, 10 * time.Second},
		"BYE":                          {byeTime, time.Second},
		"finished ids with no request": {ackDelay, 5 * time.Millisecond},
		"counts that are asked for":    {countsDelay, 5 * time.Millisecond},
	} {
		if c.is != c.want {
			t.Errorf("%s: %v, want %v", name, c.is, c.want)
		}
	}
}
