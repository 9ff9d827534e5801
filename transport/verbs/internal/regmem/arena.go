package regmem

import (
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/tryst-rdma/tryst/verbs"
)

// arena is memory that is mapped as a whole, and registered with each domain of its
// section.
type arena struct {
	pool    *pool
	section *section
	mem     []byte
	fd      int    // the memfd that the memory is; -1 when it is none
	own     bool   // for one tensor that is larger than an ordinary arena
	release func() // ends the reservation of the memory

	// regions are its registrations. The list never changes: it is replaced, with the
	// pool's lock held, and read without.
	regions atomic.Pointer[[]*region]

	// The pool's lock guards all fields below.
	kind  mapping
	first *block // lowest in memory
	used  int    // bytes allocated
	// idleSince is the time of the first sweep that found it unused; zero when it was
	// used since the last sweep.
	idleSince time.Time
	// touched is set when a block was freed since the last discard. quietSince is the time of
	// the first sweep since a block was allocated or freed.
	touched    bool
	quietSince time.Time

	// A retired arena allocates nothing. It is unmapped when nothing uses it and all its
	// registrations have ended.
	retired  bool
	closing  int  // registrations that are being ended
	stuck    bool // a registration could not be ended, so the memory stays mapped
	unmapped bool
}

// region is the registration of an arena with a domain.
type region struct {
	domain *Domain
	mr     verbs.MR
	addr   uint64
	lkey   verbs.LKey
	rkey   verbs.RKey
}

// regionOf returns the registration with a domain; nil when there is none.
func (a *arena) regionOf(d *Domain) *region {
	for _, r := range a.all() {
		if r.domain == d {
			return r
		}
	}
	return nil
}

// serves reports whether the arena is registered with need, or with any domain if need is
// nil.
func (a *arena) serves(need *Domain) bool {
	if need == nil {
		return len(a.all()) > 0
	}
	return a.regionOf(need) != nil
}

func (a *arena) all() []*region {
	if l := a.regions.Load(); l != nil {
		return *l
	}
	return nil
}

// addRegionLocked adds a registration.
func (a *arena) addRegionLocked(r *region) {
	list := append(slices.Clone(a.all()), r)
	a.regions.Store(&list)
}

// takeRegionsLocked removes the registration with a domain, or all if d is nil, and
// returns what the caller has to end with pool.end.
func (a *arena) takeRegionsLocked(d *Domain) (gone []*region) {
	var kept []*region
	for _, r := range a.all() {
		if d == nil || r.domain == d {
			gone = append(gone, r)
		} else {
			kept = append(kept, r)
		}
	}
	a.regions.Store(&kept)
	a.closing += len(gone)
	return gone
}

// addr is where the arena begins, as a device addresses it; 0 when it is not registered.
func (a *arena) addr() uint64 {
	if all := a.all(); len(all) > 0 {
		return all[0].addr
	}
	return 0
}

// newArena maps size bytes and registers them: with need, or if it is nil with at least
// one domain of the section. A domain that refuses the memory gets copies of what lies in
// it. It takes milliseconds: call it with growing held and without mu.
func (s *section) newArena(size int, need *Domain) (*arena, error) {
	a, err := s.mapArena(size)
	if err != nil {
		return nil, s.refuse(size, need, err)
	}
	if need != nil && !a.fits(need) {
		a.unmap()
		return nil, s.refuse(size, need, errors.ErrUnsupported)
	}
	var regions []*region
	var refused error
	for _, m := range s.inOrder(need) {
		if !a.fits(m.domain) {
			continue
		}
		r, err := m.domain.register(a, s.access)
		if err == nil {
			regions = append(regions, r)
			continue
		}
		if err = s.refuse(size, m.domain, err); refused == nil {
			refused = err
		}
		if m.domain == need { // the first one
			break
		}
	}
	if len(regions) == 0 {
		a.unmap()
		return nil, refused
	}
	if refused != nil {
		s.logPartial(refused)
	}
	s.pool.pattern.fill(a.mem)
	a.regions.Store(&regions)
	return a, nil
}

// logPartial logs once that a device does not register what another one does.
func (s *section) logPartial(err error) {
	s.pool.partial.Do(func() {
		s.pool.log.Warn("a device does not register all memory; what it lacks is copied, or takes another route", "reason", err)
	})
}

// mapArena maps an arena: from a memfd when a device of the section shares memory with
// peers.
func (s *section) mapArena(size int) (*arena, error) {
	release, err := s.pool.reserve(int64(size))
	if err != nil {
		return nil, err
	}
	a := &arena{pool: s.pool, section: s, fd: -1, release: release}
	if s.sharing() {
		if a.mem, a.fd, err = mapShared(size); err == nil {
			a.kind = filePages
			return a, nil
		}
		s.pool.unshared.Do(func() {
			s.pool.log.Warn("memory that is sent cannot be shared with processes on this host; it is copied once more", "reason", err)
		})
	}
	if a.mem, a.kind, err = mapMemory(size, s.mapping().of(size)); err != nil {
		release()
		return nil, err
	}
	copyInto(a.mem, a.kind)
	return a, nil
}

// unmap returns the memory to the system.
func (a *arena) unmap() {
	unmapMemory(a.mem, a.kind)
	if a.fd >= 0 {
		closeFile(a.fd)
	}
	a.release()
}

// fits reports whether a domain can register the arena's memory.
func (a *arena) fits(d *Domain) bool {
	return uint64(len(a.mem)) <= d.maxRegion && (d.device.GoMemory || a.kind != goHeap)
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
