package verbstransport

import (
	"hash/maphash"

	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/transport/verbs/channel"
	"github.com/tryst-rdma/tryst/transport/verbs/wire"
)

// keys remembers the keys that requests named lately, since the next step asks for
// the same ones: they are neither parsed nor checked nor copied again. Each has one
// place, which it takes from the one that had it before, so a peer that invents keys
// makes the link hold keySlots of them, and as many as have numbers, at most as long as
// messages are. The zero value is not ready.
type keys struct {
	check func(rendezvous.Key) error // that it may be asked for; always the same for a key
	seed  maphash.Seed
	of    [keySlots]rendezvous.Key // that passed it
	// numbered are those of them that the peer has given numbers, at number-1: they
	// are not even looked for.
	numbered [wire.KeyNumbers]struct {
		naming uint64 // which one it is good for; from 1 on
		key    rendezvous.Key
	}
}

func newKeys(check func(rendezvous.Key) error) *keys {
	return &keys{check: check, seed: maphash.MakeSeed()}
}

// asked is the key that a request is for. Its text is not kept.
func (k *keys) asked(a *channel.Ask) (rendezvous.Key, error) {
	if a.Number == 0 {
		return k.parse(a.Key)
	}
	at := &k.numbered[a.Number-1]
	if at.naming == a.Naming {
		return at.key, nil
	}
	key, err := k.parse(a.Key)
	if err == nil {
		at.naming, at.key = a.Naming, key
	}
	return key, err
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
