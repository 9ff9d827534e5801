package regmem

import (
	"cmp"
	"errors"
	"slices"
	"time"
)

// How idle memory goes back to the system. Blocks in quarantine are allocated, so their arena is in
// use and stays.

// sweep deregisters the arenas that no sweep within the time idle saw in use, and discards the pages
// of free blocks in other arenas. more is false when a later sweep has nothing to do unless
// pool.active is called before.
func (p *pool) sweep(now time.Time, idle time.Duration) (more bool, err error) {
	p.growing.Lock()
	defer p.growing.Unlock()
	p.mu.Lock()
	var leaving []*ending
	var quiet []*arena
	ordinary := make(map[*section]int64, len(p.sections))
	for _, s := range p.sections {
		for _, m := range s.members {
			m.refused = nil
		}
	}
	for _, a := range p.arenas {
		if !a.own {
			ordinary[a.section] += int64(len(a.mem))
		}
	}
	for _, a := range slices.Clone(p.arenas) {
		a.quietSince = cmp.Or(a.quietSince, now)
		switch {
		case a.used > 0 || !a.own && ordinary[a.section]-int64(len(a.mem)) < a.section.start:
			if a.used == 0 {
				a.idleSince = cmp.Or(a.idleSince, now)
			}
			if !a.touched || a.kind != lazyPages || p.pattern != nil { // the system has its pages, or cannot take them
				continue
			}
			if now.Sub(a.quietSince) >= idle {
				quiet = append(quiet, a)
			} else {
				more = true
			}
		case a.idleSince.IsZero():
			a.idleSince, more = now, true
		case now.Sub(a.idleSince) >= idle:
			if !a.own {
				ordinary[a.section] -= int64(len(a.mem))
			}
			leaving = append(leaving, p.retireLocked(a))
		default:
			more = true
		}
	}
	p.mu.Unlock()
	for _, a := range quiet {
		p.discard(a)
	}
	err = p.endAll(leaving)
	p.mu.Lock()
	defer p.mu.Unlock()
	return more || p.ending > 0, errors.Join(err, p.lateLocked())
}

// discard gives the pages of an arena's free blocks back to the system; they are zero and present
// again when they are touched. The device must lock no pages: a hardware device would go on using the
// old ones. The lock is held for each block, which takes some milliseconds for a whole arena, so that
// no allocation fails because the sweep holds a free block.
func (p *pool) discard(a *arena) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if a.quietSince.IsZero() { // in use again
		return
	}
	for b := a.first; b != nil; b = b.above {
		if b.out || !b.touched {
			continue
		}
		b.touched = false
		from, to := (b.off+pageMultiple-1)/pageMultiple*pageMultiple, (b.off+b.size)/pageMultiple*pageMultiple
		if from < to { // whole pages
			discardPages(a.mem[from:to])
		}
	}
	a.touched = false
}

// absent returns how many bytes of the arena's free blocks have no pages. Called with mu of the pool held.
func (a *arena) absent() (n int64) {
	if a.kind != lazyPages {
		return 0
	}
	for b := a.first; b != nil; b = b.above {
		if !b.out && !b.touched {
			n += int64(b.size)
		}
	}
	return n
}
