package verbstransport

import (
	"strconv"
	"testing"

	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/transport/verbs/channel"
	"github.com/tryst-rdma/tryst/transport/verbs/wire"
)

// A key is what its text says, whatever had its place before; the second time it costs
// nothing; and what does not parse, or may not be asked for, never becomes one that is.
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
					t.Errorf("round %d: %q was refused by nobody", round, got)
				}
				continue
			}
			if err != nil || got.Edge() != strconv.Itoa(i) {
				t.Fatalf("round %d: key %d is %q, %v", round, i, got, err)
			}
			clear(b) // the message is gone
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

// A number means the key that it was given with last, whether or not the request that gave it
// came this far; it does not stand for a key that was refused; and it costs nothing.
func TestKeysByTheirNumbers(t *testing.T) {
	const refused = "refused"
	checked := 0
	k := newKeys(func(key rendezvous.Key) error {
		if checked++; key.Edge() == refused {
			return status.New(status.Aborted, "it is another process's")
		}
		return nil
	})
	ask := func(name string, number uint16, naming uint64) *channel.Ask {
		key := rendezvous.CreateKey("/job:a/replica:0/task:0/device:CPU:0", 1, "/job:b/replica:0/task:0/device:CPU:0", name, rendezvous.FrameIter{})
		return &channel.Ask{Key: []byte(key), Number: number, Naming: naming}
	}
	for i, c := range []struct {
		name   string
		number uint16
		naming uint64
	}{
		{"v", 1, 1}, {"v", 1, 1},
		{"w", wire.KeyNumbers, 2}, {"v", 1, 1}, {"w", wire.KeyNumbers, 2},
		{"w", 1, 3}, {"w", 1, 3}, {"w", wire.KeyNumbers, 2},
		{refused, 1, 4}, {refused, 1, 4}, {"v", 0, 0},
		{"v", 1, 5}, {"w", 1, 7}, {"v", 1, 8}, // 6 was answered by others
	} {
		a := ask(c.name, c.number, c.naming)
		key, err := k.asked(a)
		if c.name == refused {
			if err == nil {
				t.Errorf("%d: %q was refused by nobody", i, key)
			}
		} else if err != nil || key.Edge() != c.name {
			t.Errorf("%d: %s is %q, %v", i, c.name, key, err)
		}
		clear(a.Key) // the message is gone
	}
	a := ask("x", 3, 9)
	if _, err := k.asked(a); err != nil {
		t.Fatal(err)
	}
	before := checked
	a.Key = nil // not looked at
	if n := testing.AllocsPerRun(100, func() { _, _ = k.asked(a) }); n != 0 || checked != before {
		t.Errorf("%v allocations for a key with a number, and %d checks", n, checked-before)
	}
	if key, err := k.asked(a); err != nil || key.Edge() != "x" {
		t.Errorf("the number is %q, %v", key, err)
	}
}
