package checkpoint

import (
	"slices"
	"time"

	"github.com/tryst-rdma/tryst/status"
)

// lineage is the versions of one publication at its server, as a value: events and the time go in, and
// the versions whose pulls end come out.
//
//	enter ─► current ─► old ─► ended ─► back
//	            │  ▲      │      │       └ the last reference to its memory was released
//	            │  │      │      └ its keys are gone; its pulls end with an error
//	            │  │      └ pulls of it go on, until none is left, or for bound
//	            │  └ another version with the same name enters
//	            └ dropped, if no pull has begun, or withdrawn: ended at once
//
// A version in memory is held from enter to back. At most maxHeld are, so the next one waits (update)
// until one is back. A version in files holds no memory: its end is decided in reload.go.
type lineage struct {
	bound time.Duration // how long pulls of an old version may go on

	epoch   uint64  // of current, and of the next version
	number  uint64  // of the last version
	current *life   // nil without one
	old     []*life // in memory, replaced or withdrawn, and not back
	waiting int     // updates
}

// life is what the lineage knows of one version.
type life struct {
	of            *publication // nil in tests without any
	epoch, number uint64
	inMemory      bool
	pulls         int
	begun         bool      // a pull of it has begun
	idle          time.Time // when its last pull ended; zero before
	retired       time.Time // when it was replaced or withdrawn; zero before
	wanted        int       // owners that wait for its memory
	ended         bool
	dropped       bool // another one took its place before a pull of it began, and ended it
}

// held returns how many versions are in memory.
func (l *lineage) held() int {
	n := len(l.old)
	if l.current != nil && l.current.inMemory {
		n++
	}
	return n
}

// full reports whether v must wait for memory.
func (l *lineage) full(v *life) bool { return v.inMemory && l.held() >= maxHeld }

// unbegun reports whether the current version can be dropped: no pull of it has begun.
func (l *lineage) unbegun() bool {
	return l.current != nil && l.current.inMemory && !l.current.begun
}

// next returns the number of the next version: asked, or the next one if that is 0. A number that does
// not ascend is InvalidArgument.
func (l *lineage) next(asked uint64) (uint64, error) {
	if asked == 0 {
		return l.number + 1, nil
	}
	if asked <= l.number {
		return 0, status.Errorf(status.InvalidArgument, "the number %d is not above %d, that of the version before; withdraw the publication to begin anew", asked, l.number)
	}
	return asked, nil
}

// update is the event that the next version is there. It enters if there is room, and with drop also in
// the place of a version that no pull has begun. ok is false if it must wait.
func (l *lineage) update(now time.Time, v *life, number uint64, drop bool) (ended []*life, ok bool) {
	full := l.full(v)
	dropped := full && drop && l.unbegun()
	if full && !dropped {
		return nil, false
	}
	return l.enter(now, v, number, dropped), true
}

// enter makes v the current version. The one before is retired, or ends at once.
func (l *lineage) enter(now time.Time, v *life, number uint64, drop bool) (ended []*life) {
	before := l.current
	l.number, l.current = number, v
	v.epoch, v.number = l.epoch, number
	if before == nil {
		return nil
	}
	before.retired = now
	if !before.inMemory {
		return nil
	}
	l.old = append(l.old, before)
	if drop {
		before.ended, before.dropped = true, true
		return []*life{before}
	}
	return l.tick(now)
}

// begin is the event that a pull of v begins.
func (l *lineage) begin(v *life) { v.pulls, v.begun = v.pulls+1, true }

// end is the event that a pull of v has ended.
func (l *lineage) end(now time.Time, v *life) (ended []*life) {
	v.pulls, v.idle = v.pulls-1, now
	return l.tick(now)
}

// wait is the event that an update must wait, and gaveUp that it waits no more.
func (l *lineage) wait(now time.Time) (ended []*life) {
	l.waiting++
	return l.tick(now)
}

func (l *lineage) gaveUp() { l.waiting-- }

// want is the event that the owner of the memory of v waits for it, and unwant that he waits no more.
func (l *lineage) want(now time.Time, v *life) (ended []*life) {
	v.wanted++
	return l.tick(now)
}

func (l *lineage) unwant(v *life) { v.wanted-- }

// withdraw is the event that the publication is withdrawn: all versions end. The next version begins
// another epoch.
func (l *lineage) withdraw(now time.Time, epoch uint64) (ended []*life) {
	if v := l.current; v != nil && v.inMemory {
		v.retired = now
		l.old = append(l.old, v)
	}
	l.current, l.epoch, l.number = nil, epoch, 0
	for _, v := range l.old {
		if !v.ended {
			v.ended = true
			ended = append(ended, v)
		}
	}
	return ended
}

// back is the event that nothing refers to the memory of v any more.
func (l *lineage) back(v *life) {
	l.old = slices.DeleteFunc(l.old, func(o *life) bool { return o == v })
}

// over returns when an old version ends by itself; zero if only an event can end it.
func (l *lineage) over(v *life) time.Time {
	bound := v.retired.Add(l.bound)
	switch {
	case v.pulls > 0:
		return bound
	case v.idle.IsZero(), l.waiting > 0, v.wanted > 0:
		return v.retired // nobody comes back, or nobody is waited for
	}
	again := v.idle.Add(comeBack)
	if again.After(bound) {
		return bound
	}
	return again
}

// tick ends the versions whose time is over.
func (l *lineage) tick(now time.Time) (ended []*life) {
	for _, v := range l.old {
		if !v.ended && !now.Before(l.over(v)) {
			v.ended = true
			ended = append(ended, v)
		}
	}
	return ended
}

// wake returns when tick is to be called next; zero for never.
func (l *lineage) wake() (at time.Time) {
	for _, v := range l.old {
		if over := l.over(v); !v.ended && (at.IsZero() || over.Before(at)) {
			at = over
		}
	}
	return at
}

// forgotten reports whether nothing is left to know.
func (l *lineage) forgotten() bool { return l.current == nil && len(l.old) == 0 && l.waiting == 0 }
