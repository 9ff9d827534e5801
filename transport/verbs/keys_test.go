package verbstransport

import (
	"strconv"
	"testing"

	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
)

// TestKeysOfRequests: the cache returns the key of the text, whatever used its slot
// before; the second lookup does not allocate; a key that does not parse, or fails the
// check, is never returned.
func TestKeysOfRequests(t *testing.T) {
	text := func(i int) []byte {
		return []byte(rendezvous.CreateKey("/job:a/replica:0/task:0/device:CPU:0", 1, "/job:b/replica:0/task:0/device:CPU:0", strconv.Itoa(i), rendezvous.FrameIter{}))
	}
	refused := text(9)
	k := newKeys(func(key rendezvous.Key) error {
		if key.String() == string(refused) {
			return status.New(status.Aborted, "it is another process's")
		}
		return nil
	})
	for round := range 3 {
		for i := range 4 * keySlots {
			b := text(i)
			got, err := k.parse(b)
			if string(b) == string(refused) {
				if err == nil {
					t.Errorf("round %d: %q was not refused", round, got)
				}
				continue
			}
			if err != nil || got.Edge() != strconv.Itoa(i) {
				t.Fatalf("round %d: key %d is %q, %v", round, i, got, err)
			}
			clear(b) // the message buffer is reused
		}
		for _, bad := range []string{"", "a;b", string(text(1)) + ";"} {
			if got, err := k.parse([]byte(bad)); err == nil {
				t.Errorf("%q is %q", bad, got)
			}
		}
	}
	b := text(7)
	if n := testing.AllocsPerRun(100, func() { _, _ = k.parse(b) }); n != 0 {
		t.Errorf("%v allocations for a key that is known", n)
	}
}
