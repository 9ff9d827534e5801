package regmem

import (
	"time"

	"github.com/tryst-rdma/tryst/verbs"
)

// arena is memory that is mapped and registered in one piece.
type arena struct {
	pool *pool
	mem  []byte
	kind mapping
	mr   verbs.MR
	own  bool // for one tensor that is larger than an ordinary arena

	// The pool's lock guards all fields below.
	first *block // lowest in memory
	used  int    // bytes allocated
	// idleSince is the time of the first sweep that found it unused; zero when it was
	// used since the last sweep.
	idleSince time.Time
	state     arenaState
	// touched is set when a block was freed since the last discard. quietSince is the time of
	// the first sweep since a block was allocated or freed.
	touched    bool
	quietSince time.Time
}

// arenaState says how far an arena has come in the closing of its pool.
type arenaState uint8

const (
	liveArena    arenaState = iota
	leavingArena            // allocates nothing, still registered
	goneArena               // not registered; unmapped with its last block
)

// newArena maps and registers size bytes. It takes milliseconds: call it without p.mu.
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

// idleLonger orders idle arenas: the first to deregister comes first.
func idleLonger(a, b *arena) int {
	switch {
	case a.own != b.own: // ordinary arenas serve tensors of any size
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
