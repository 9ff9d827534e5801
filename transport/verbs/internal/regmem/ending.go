package regmem

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tryst-rdma/tryst/verbs"
)

// ending holds the registrations of an arena that are to be ended (endAll).
type ending struct {
	arena *arena
	gone  []*region
	late  bool // no caller waits for the error; the next sweep returns it
}

// endingLocked takes the registration with a domain, or all if d is nil, from an arena. The caller
// ends it (endAll).
func endingLocked(a *arena, d *Domain) *ending {
	p := a.pool
	p.ending++
	gone := a.takeRegionsLocked(d)
	for _, r := range gone {
		p.leaving[r.domain]++
	}
	return &ending{arena: a, gone: gone}
}

// retireLocked removes an arena from the pool. The caller ends its registrations (endAll). It is
// unmapped when its last block is free.
func (p *pool) retireLocked(a *arena) *ending {
	a.retired = true
	for b := a.first; b != nil && !a.own; b = b.above {
		if !b.out {
			a.section.free.drop(b)
		}
	}
	i := slices.Index(p.arenas, a)
	p.arenas = slices.Delete(p.arenas, i, i+1)
	return endingLocked(a, nil)
}

// slow reports whether a device may have to wait for peers, which map the memory.
func (e *ending) slow() bool { return slices.ContainsFunc(e.gone, e.maps) }

// maps reports whether peers may map the memory because of a registration.
func (e *ending) maps(r *region) bool { return r.domain.shared != nil && e.arena.fd >= 0 }

// endAll ends registrations, and unmaps memory that nothing uses. Memory that cannot be deregistered
// stays mapped, since the device may still write to it; PoolStats.Stuck counts it. What peers map is
// ended on goroutines of their own, so that no peer holds up others: until then it counts against the
// limit of the pool, and the error is that of the next sweep. Called without mu.
func (p *pool) endAll(endings []*ending) (err error) {
	for _, e := range endings {
		if !e.slow() {
			err = errors.Join(err, p.end(e))
			continue
		}
		e.late = true
		p.active()
		go func() { _ = p.end(e) }()
	}
	return err
}

// awaitEnded waits until no ending is under way. The goroutines of endAll have then done their work.
func (p *pool) awaitEnded() { p.await(func() bool { return p.ending == 0 }) }

// awaitLeft waits until no registration with a domain is being ended.
func (p *pool) awaitLeft(d *Domain) { p.await(func() bool { return p.leaving[d] == 0 }) }

// await waits until done, which is called with mu held, reports true after an ending.
func (p *pool) await(done func() bool) {
	for {
		p.mu.Lock()
		ok, next := done(), p.ended
		p.mu.Unlock()
		if ok {
			return
		}
		<-next
	}
}

// signalLocked wakes those that wait for endings.
func (p *pool) signalLocked() {
	close(p.ended)
	p.ended = make(chan struct{})
}

func (p *pool) takeLate() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lateLocked()
}

func (p *pool) lateLocked() (err error) {
	err, p.late = p.late, nil
	return err
}

// awaitRoom waits until size bytes are within the limit, as long as peers may take to drop what
// they map if nothing holds them up.
func (p *pool) awaitRoom(size int64) {
	enough := time.NewTimer(endWait)
	defer enough.Stop()
	for {
		p.mu.Lock()
		wait, next := p.ending > 0 && size > p.limit-p.mapped, p.ended
		p.mu.Unlock()
		if !wait {
			return
		}
		select {
		case <-next:
		case <-enough.C:
			return
		}
	}
}

// end ends the registrations of one arena. Those that may wait for peers come last, so that no
// peer holds up the end of another device.
func (p *pool) end(e *ending) error {
	defer func() { // at last, when the memory is unmapped
		p.mu.Lock()
		defer p.mu.Unlock()
		p.ending--
		p.signalLocked()
	}()
	var failed error
	slices.SortStableFunc(e.gone, func(a, b *region) int {
		switch a, b := e.maps(a), e.maps(b); {
		case a == b:
			return 0
		case b:
			return -1
		}
		return 1
	})
	for _, r := range e.gone {
		if err := r.mr.Close(); err != nil && !errors.Is(err, verbs.ErrDeviceGone) { // a device that is gone does not write
			failed = errors.Join(failed, fmt.Errorf("%d bytes of the %s pool stay registered with %s: %w", len(e.arena.mem), p.name, r.domain.device.Name, err))
		}
		p.leftOne(r.domain)
	}
	a := e.arena
	p.mu.Lock()
	a.closing -= len(e.gone)
	if e.late {
		p.late = errors.Join(p.late, failed)
	}
	var others *ending
	if failed != nil && !a.stuck {
		a.stuck = true
		p.stuck += int64(len(a.mem))
		p.mapped -= int64(len(a.mem))
		if !a.retired { // the device may write to memory that is allocated again
			others = p.retireLocked(a)
		}
	}
	unmap := p.doneLocked(a)
	p.mu.Unlock()
	if unmap {
		a.unmap()
	}
	if others != nil {
		others.late = e.late
		return errors.Join(failed, p.end(others))
	}
	return failed
}

// leftOne records that one registration with a domain has ended.
func (p *pool) leftOne(d *Domain) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.leaving[d]--; p.leaving[d] == 0 {
		delete(p.leaving, d)
		p.signalLocked()
	}
}

// doneLocked reports whether the caller has to unmap an arena.
func (p *pool) doneLocked(a *arena) bool {
	if !a.retired || a.used > 0 || a.closing > 0 || a.stuck || a.unmapped {
		return false
	}
	a.unmapped = true
	p.mapped -= int64(len(a.mem))
	return true
}
