package verbstransport

import (
	"hash/maphash"

	"github.com/tryst-rdma/tryst/rendezvous"
)

// keys caches the keys of recent requests, since each step requests the same keys: a cached
// key is not parsed, checked or copied again. The cache is direct-mapped, so a peer that
// invents keys makes a link hold keySlots keys at most, each no longer than a message. Use
// newKeys.
type keys struct {
	check func(rendezvous.Key) error // Options.Check
	seed  maphash.Seed
	slots [keySlots]rendezvous.Key // keys that passed check
}

func newKeys(check func(rendezvous.Key) error) *keys {
	return &keys{check: check, seed: maphash.MakeSeed()}
}

// parse parses and checks a key. It does not keep text.
func (k *keys) parse(text []byte) (rendezvous.Key, error) {
	at := &k.slots[maphash.Bytes(k.seed, text)%keySlots]
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
