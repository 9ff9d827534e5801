package channel

import (
	"encoding/binary"
	"math/bits"

	"github.com/tryst-rdma/tryst/transport/verbs/wire"
)

// Keys that are asked for again go by numbers (PROTOCOL.md section 8.2). Requests go in
// order over rail 0 or the channel ends, so whoever posts one knows what the peer will
// know when it takes it.

// numbers is what the numbers of the asker's side mean: the key with number i+1, and ""
// where there is none.
type numbers [wire.KeyNumbers]string

// short gives the number of a key, and what of its text goes with a request that is
// posted now: all, or nothing. The next one counts on this one.
func (n *numbers) short(key string) (number uint16, text string) {
	number = numberOf(key)
	at := &n[number-1]
	if *at == key {
		return number, ""
	}
	*at = key
	return number, key
}

// numberOf is the number that a key takes, from whichever had it before. Keys of one
// program differ at their ends, where their names stand; and the same program has the
// same numbers in each run, which searches rely on. Those that share one are named in
// full in turn, as without numbers.
func numberOf(key string) uint16 {
	var end [32]byte
	copy(end[:], key[max(0, len(key)-len(end)):])
	word := func(i int) uint64 { return binary.LittleEndian.Uint64(end[8*i:]) }
	// Odd numbers without a pattern: the fractions of the square roots of 2, 3, 5 and 7.
	ah, al := bits.Mul64(word(0)^0x6a09e667f3bcc909, word(1)^0xbb67ae8584caa73b)
	bh, bl := bits.Mul64(word(2)^0x3c6ef372fe94f82b, word(3)^0xa54ff53a5f1d36f1)
	h := (ah ^ al ^ uint64(len(key))) + (bh ^ bl) //nolint:gosec // not negative
	return uint16((h^h>>32)%wire.KeyNumbers) + 1
}

// names is what the numbers of the sender's side mean, the key with number i+1. A peer
// makes it hold wire.KeyNumbers keys, each at most as long as a message.
type names struct {
	of  [wire.KeyNumbers]named
	all uint64 // namings so far
}

type named struct {
	text   []byte // empty until the number is given
	naming uint64 // which one gave it this text
	list   uint64 // of actions, the latest that refers to text
}

// knows reports whether a request says which key it is for.
func (n *names) knows(m *wire.Request) bool {
	return len(m.Key) > 0 || len(n.of[m.Number-1].text) > 0
}

// key is the key of a request that knows is true of, and the naming that gave it its
// number. The list of actions that is being made may refer to it; those before the last
// are not looked at any more.
func (n *names) key(m *wire.Request, list uint64) (key []byte, naming uint64) {
	if m.Number == 0 {
		return m.Key, 0
	}
	at := &n.of[m.Number-1]
	if len(m.Key) == 0 {
		at.list = list
		return at.text, at.naming
	}
	if string(at.text) != string(m.Key) {
		if at.list+2 > list {
			at.text = nil // actions refer to it
		}
		n.all++
		at.text, at.naming = append(at.text[:0], m.Key...), n.all
	}
	return m.Key, at.naming
}
