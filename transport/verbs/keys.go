package verbstransport

import (
	"hash/maphash"

	"github.com/tryst-rdma/tryst/rendezvous"
)

// keys remembers the keys that requests named lately, since the next step asks for
// the same ones: they are neither parsed nor checked nor copied again. Each has one
// place, which it takes from the one that had it before, so a peer that invents keys
// makes the link hold keySlots of them, at most as long as messages are. The zero value is not ready.
type keys struct {
	check func(rendezvous.Key) error // that it may be asked for; always the same for a key
	seed  maphash.Seed
	of    [keySlots]rendezvous.Key // that passed it
}

func newKeys(check func(rendezvous.Key) error) *keys {
	return &keys{check: check, seed: maphash.MakeSeed()}
}

// parse is rendezvous.ParseKey of a text that is not kept, and check.
func (k *keys) parse(text []byte) (rendezvous.Key, error) {
	at := &k.of[maphash.Bytes(k.seed, text)%keySlots]
	if at.String() == string(text) && len(text) > 0 {
		return *at, nil
	}
	key, err := rendezvous.ParseKey(string(text))
	if err == nil {
		err = k.check(key)
	}
	if err == nil {
		*at = key
	}
	return key, err
}
