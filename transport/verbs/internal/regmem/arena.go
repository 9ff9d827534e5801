package regmem

import (
	"time"

	"github.com/tryst-rdma/tryst/verbs"
)

// arena is memory that is mapped and registered as one.
type arena struct {
	pool *pool
	mem  []byte
	kind mapping
	mr   verbs.MR
	own  bool // holds one tensor that is larger than an ordinary arena

	// Guarded by the pool's lock.
	first *block // lowest in memory
	used  int    // bytes handed out
	// idleSince is the sweep that first saw it without use; zero when it has
	// been used since the last one.
	idleSince time.Time
	state     arenaState
}

// arenaState is how an arena ends when its pool is closed.
type arenaState uint8

const (
	liveArena    arenaState = iota
	leavingArena            // hands out nothing, still registered
	goneArena               // not registered; the memory goes with its last block
)

// newArena maps and registers size bytes. It takes time: no lock is held.
func newArena(p *pool, size int) (*arena, error) {
	mem, kind, err := mapMemory(size, p.mapping.of(size))
	if err != nil {
		return nil, err
	}
	mr, err := p.pd.RegisterMemory(mem, p.access)
	if err != nil {
		unmapMemory(mem, kind)
		return nil, err
	}
	p.pattern.fill(mem)
	return &arena{pool: p, mem: mem, kind: kind, mr: mr}, nil
}

// idleLonger orders arenas: the one to do without comes first.
func idleLonger(a, b *arena) int {
	switch {
	case a.own != b.own: // ordinary ones serve everybody
		if a.own {
			return -1
		}
		return 1
	case a.idleSince.IsZero() != b.idleSince.IsZero():
		if b.idleSince.IsZero() {
			return -1
		}
		return 1
	}
	return a.idleSince.Compare(b.idleSince)
}
