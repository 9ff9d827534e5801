package regmem

import (
	"errors"
	"math"
	"slices"
	"strings"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/verbs"
)

// section is the arenas of a pool that give the same rights, so that they are registered
// with the same domains. The sections of a pool share its limit.
type section struct {
	pool   *pool
	access verbs.Access
	shares bool // devices may share the memory with peers on the same host

	// members are the attached domains. They and arenaSize change with growing and mu of
	// the pool held, so either lock suffices to read them.
	members   []*member
	arenaSize int

	// The pool's lock guards all fields below.
	free  classes // the free blocks of ordinary arenas
	start int64   // bytes that sweep keeps registered
	// partial is set while a domain has not registered all arenas.
	partial bool
}

// member is a domain in a section.
type member struct {
	domain  *Domain
	refused error // why the device refused to register; tried again after the next sweep
	refusal int   // bytes of the smallest region that it refused
}

// resizeLocked sets the size of arenas: a size class, as otherwise a request for a whole
// arena would look in a class above the one that lists the free arena, and not find it.
func (s *section) resizeLocked() {
	most := uint64(s.pool.limit) //nolint:gosec // never negative
	for _, m := range s.members {
		most = min(most, m.domain.maxRegion)
	}
	s.arenaSize = classSize(min(ceilClass(s.pool.largest), floorClass(int(most)))) //nolint:gosec // at most the limit
}

// sharing reports whether a device shares the memory with peers. The arenas are then memfds,
// whose pages are all present and do not go before the arena does. So none is kept for
// later, and the first ones are small.
func (s *section) sharing() bool {
	return s.shares && slices.ContainsFunc(s.members, func(m *member) bool { return m.domain.shared != nil })
}

// mapping returns the source of memory for the domains of the section.
func (s *section) mapping() mapping {
	return mappingFor(!slices.ContainsFunc(s.members, func(m *member) bool { return !m.domain.device.GoMemory }))
}

// inOrder returns the members, need first.
func (s *section) inOrder(need *Domain) []*member {
	if i := s.index(need); i > 0 {
		return append([]*member{s.members[i]}, slices.Delete(slices.Clone(s.members), i, i+1)...)
	}
	return s.members
}

func (s *section) index(d *Domain) int {
	return slices.IndexFunc(s.members, func(m *member) bool { return m.domain == d })
}

// devices names the devices, for errors.
func (s *section) devices() string {
	var names []string
	for _, m := range s.members {
		names = append(names, m.domain.device.Name)
	}
	return strings.Join(names, ", ")
}

// largestRegion is the longest memory region of a domain, or of any if need is nil.
func (s *section) largestRegion(need *Domain) (most uint64, device string) {
	for _, m := range s.members {
		if d := m.domain; (need == nil || need == d) && d.maxRegion > most {
			most, device = d.maxRegion, d.device.Name
		}
	}
	return most, device
}

// refuse records that a domain, or each if d is nil, did not get size bytes.
func (s *section) refuse(size int, d *Domain, cause error) error {
	device := s.devices()
	if d != nil {
		device = d.device.Name
	}
	err := registerError(device, s.pool.name, size, cause)
	p := s.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range s.members {
		if (d == nil || m.domain == d) && (m.refused == nil || size < m.refusal) {
			m.refused, m.refusal = err, size
		}
	}
	p.active()
	return err
}

// refusedLocked returns why no arena of size bytes can be made for need, or for any domain
// if need is nil, as far as that is known.
func (s *section) refusedLocked(size int, need *Domain) (err error) {
	for _, m := range s.members {
		if need != nil && m.domain != need {
			continue
		}
		if m.refused == nil || size < m.refusal { // less may still be registered
			return nil
		}
		if err == nil {
			err = m.refused
		}
	}
	return err
}

// reviewLocked sets partial.
func (s *section) reviewLocked() {
	s.partial = slices.ContainsFunc(s.pool.arenas, func(a *arena) bool {
		return a.section == s && len(a.all()) < len(s.members)
	})
}

// attach adds a domain: it registers the arenas that exist, and prepares start bytes (one
// arena if it is 0). Memory in use that the domain cannot register is no error: it is
// copied for the domain.
func (s *section) attach(d *Domain, start int64) error {
	p := s.pool
	p.growing.Lock()
	defer p.growing.Unlock()
	p.mu.Lock()
	s.members = append(slices.Clone(s.members), &member{domain: d})
	s.resizeLocked()
	switch {
	case s.sharing():
		s.start, start = 0, -1
	case start == 0:
		start = int64(s.arenaSize)
	}
	var unfit []*ending
	var arenas []*arena
	for _, a := range slices.Clone(p.arenas) {
		switch {
		case a.section != s:
		case a.used == 0 && (!a.fits(d) || d.shared != nil && s.shares && a.fd < 0):
			unfit = append(unfit, p.retireLocked(a))
		case a.fits(d):
			arenas = append(arenas, a)
			if !d.device.GoMemory && a.kind == lazyPages { // the device pins the pages, so none may be discarded
				a.kind = pages
			}
		}
	}
	p.mu.Unlock()
	err := p.endAll(unfit)
	for _, a := range arenas { // growing is held, so none is retired meanwhile
		r, e := d.register(a, s.access)
		if e != nil {
			s.logPartial(s.refuse(len(a.mem), d, e))
			continue
		}
		p.mu.Lock()
		a.addRegionLocked(r)
		p.mu.Unlock()
	}
	p.mu.Lock()
	s.reviewLocked()
	p.mu.Unlock()
	return errors.Join(err, s.prepare(start, d))
}

// prepare registers ordinary arenas until a domain has bytes, rounded up to whole arenas
// within the limit. Sweep keeps them. The caller holds growing.
func (s *section) prepare(bytes int64, d *Domain) error {
	p := s.pool
	for {
		p.mu.Lock()
		registered := int64(0)
		for _, a := range p.arenas {
			if a.section == s && !a.own && a.serves(d) {
				registered += int64(len(a.mem))
			}
		}
		done := p.closed.Load() || registered >= bytes || p.mapped >= p.limit
		if done {
			s.start = max(s.start, min(registered, (bytes+int64(s.arenaSize)-1)/int64(s.arenaSize)*int64(s.arenaSize)))
		}
		p.mu.Unlock()
		if done {
			return nil
		}
		if _, err := s.grow(0, d); err != nil {
			return err
		}
	}
}

// detach removes a domain and ends its registrations. Tensors in use keep their memory.
func (s *section) detach(d *Domain) error {
	p := s.pool
	p.growing.Lock()
	p.mu.Lock()
	i := s.index(d)
	if i < 0 {
		p.mu.Unlock()
		p.growing.Unlock()
		return nil
	}
	s.members = slices.Delete(slices.Clone(s.members), i, i+1)
	s.resizeLocked()
	var ending []*ending
	for _, a := range slices.Clone(p.arenas) {
		switch {
		case a.section != s:
		case len(s.members) == 0 && a.used == 0:
			ending = append(ending, p.retireLocked(a))
		default:
			ending = append(ending, endingLocked(a, d))
		}
	}
	if len(s.members) == 0 {
		s.start = 0
	}
	s.reviewLocked()
	p.mu.Unlock()
	p.growing.Unlock()
	err := p.endAll(ending)
	if d.shared == nil {
		p.awaitLeft(d) // of arenas that have left the pool before
		return err
	}
	p.awaitEnded()
	return errors.Join(err, p.takeLate())
}

// Allocate implements tensor.Allocator. It may register memory.
func (s *section) Allocate(n int) (*tensor.Buffer, error) {
	if n == 0 {
		return tensor.NewBuffer(nil, nil), nil
	}
	b, err := s.take(n, MayGrow, nil)
	if err != nil {
		return nil, err
	}
	return b.buffer(n), nil
}

// AllocateBuffer implements tensor.BufferAllocator.
func (s *section) AllocateBuffer(buf *tensor.Buffer, n int) error {
	if n == 0 {
		buf.Init(nil, nil)
		return nil
	}
	b, err := s.take(n, MayGrow, nil)
	if err != nil {
		return err
	}
	buf.Init(b.bytes()[:n], b)
	return nil
}

// sizeLocked returns how many bytes of an arena an allocation of n takes, and whether it
// needs an arena of its own.
func (s *section) sizeLocked(n int) (size int, own bool) {
	switch {
	case n == 0:
		return 0, false
	case n > s.arenaSize:
		return (n + pageMultiple - 1) / pageMultiple * pageMultiple, true
	}
	return classSize(ceilClass(n)), false
}

// take allocates a block of at least n bytes, n ≥ 1, that is registered with need, or with
// any domain if need is nil.
func (s *section) take(n int, grow Grow, need *Domain) (*block, error) {
	b, err := s.takeOnce(n, grow, need)
	if grow == NoGrow {
		if status.CodeOf(err) == status.ResourceExhausted {
			s.pool.refused()
		}
		return b, err
	}
	for try := 0; s.pool.triesAgain(n, try, err); try++ {
		b, err = s.takeOnce(n, grow, need)
	}
	return b, err
}

// takeOnce is take without giving back what the users of the pool do not need. It does not count a refusal.
func (s *section) takeOnce(n int, grow Grow, need *Domain) (*block, error) {
	if n <= 0 {
		return nil, status.Errorf(status.InvalidArgument, "cannot allocate %d bytes of registered memory", n)
	}
	b, err := s.takeFree(n, need)
	if err == nil || grow == NoGrow || !errors.Is(err, ErrMustGrow) {
		return b, err
	}
	s.pool.growing.Lock()
	defer s.pool.growing.Unlock()
	// Another goroutine may have registered memory meanwhile.
	if b, err = s.takeFree(n, need); err == nil || !errors.Is(err, ErrMustGrow) {
		return b, err
	}
	return s.grow(n, need)
}

// takeFree is take without registering. It returns ErrMustGrow when registering could
// help.
func (s *section) takeFree(n int, need *Domain) (*block, error) {
	p := s.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed.Load() || len(s.members) == 0 || need != nil && s.index(need) < 0 {
		return nil, status.Errorf(status.Unavailable, "the %s pool has no such device: %w", p.name, verbs.ErrClosed)
	}
	if int64(n) > p.limit {
		return nil, p.tooLargeLocked(n, "the limit of the "+p.name+" pool of "+s.devices(), uint64(p.limit)) //nolint:gosec // never negative
	}
	if most, device := s.largestRegion(need); uint64(n) > most { //nolint:gosec // never negative
		return nil, p.tooLargeLocked(n, "the largest memory region of "+device, most)
	}
	size, own := s.sizeLocked(n)
	if b := s.freeLocked(size, own, need); b != nil {
		p.handOutLocked(b, size)
		return b, nil
	}
	if p.ending == 0 && p.coming == 0 && p.idleLocked() < int64(size)-(p.limit-p.mapped) {
		return nil, s.fullLocked(n)
	}
	if err := s.refusedLocked(s.growthLocked(size, own), need); err != nil {
		return nil, err
	}
	return nil, ErrMustGrow
}

// freeLocked finds a free block for size bytes, or nil.
func (s *section) freeLocked(size int, own bool, need *Domain) *block {
	if !own {
		if !s.partial {
			return s.free.find(ceilClass(size))
		}
		return s.free.search(ceilClass(size), func(b *block) bool { return b.arena.serves(need) })
	}
	var best *arena
	for _, a := range s.pool.arenas {
		if a.section == s && a.own && a.used == 0 && len(a.mem) >= size && len(a.mem) <= size+size/ownWaste && a.serves(need) &&
			(best == nil || len(a.mem) < len(best.mem)) {
			best = a
		}
	}
	if best == nil {
		return nil
	}
	return best.first
}

// grow registers an arena of at least n bytes and allocates n of them, nothing if n is 0.
// It first deregisters idle arenas as far as the limit requires. The caller holds growing.
func (s *section) grow(n int, need *Domain) (*block, error) {
	p := s.pool
	p.mu.Lock()
	size, own := s.sizeLocked(n)
	leaving := p.leavingLocked(int64(size))
	p.mu.Unlock()
	err := p.endAll(leaving)
	p.awaitRoom(int64(size))

	p.mu.Lock()
	if room := p.limit - p.mapped; int64(size) > room { // idle arenas are in use again meanwhile
		full := s.fullLocked(n)
		p.mu.Unlock()
		return nil, errors.Join(full, err)
	}
	total := s.growthLocked(size, own)
	p.mapped += int64(total)
	p.coming = int64(total)
	p.mu.Unlock()

	var a *arena
	if err != nil {
		err = s.refuse(total, need, err)
	} else {
		a, err = s.newArena(total, need)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.coming = 0
	if err != nil {
		p.mapped -= int64(total)
		return nil, err
	}
	a.own = own
	p.grown++
	p.arenas = append(p.arenas, a)
	s.reviewLocked()
	a.first = p.headerLocked()
	*a.first = block{arena: a, size: total}
	if !own {
		s.free.put(a.first)
	}
	if size == 0 {
		return nil, nil
	}
	p.handOutLocked(a.first, size)
	return a.first, nil
}

// growthLocked is how many bytes grow registers for size. It may be more after grow has
// deregistered idle arenas.
func (s *section) growthLocked(size int, own bool) int {
	if own {
		return size
	}
	most := int64(s.arenaSize)
	if s.sharing() {
		ordinary := 0
		for _, a := range s.pool.arenas {
			if a.section == s && !a.own {
				ordinary += len(a.mem)
			}
		}
		most = min(most, max(firstShared, int64(classSize(floorClass(max(ordinary, granule))))))
	}
	return int(max(min(most, s.pool.limit-s.pool.mapped), int64(size))) // the last arena below the limit is smaller
}

// fullLocked is the error of a pool that is at its limit.
func (s *section) fullLocked(n int) error {
	p := s.pool
	parts := ""
	if int64(n) <= p.limit-p.inUse {
		parts = ", and no free part is large enough"
	}
	return status.PassingIf(int64(n) <= p.limit,
		"no room for %d bytes in the %s pool of %s: %d bytes are in use and its limit is %d%s; release tensors sooner, move fewer at a time, or raise the setting arena-limit",
		n, p.name, s.devices(), p.inUse, p.limit, parts)
}

// wholePages is the part of n that regions can have: arenas and slots have whole pages.
func wholePages(n uint64) uint64 {
	if n == 0 {
		n = math.MaxInt
	}
	return n / pageMultiple * pageMultiple
}
