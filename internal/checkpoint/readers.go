package checkpoint

import (
	"sync"
	"time"
)

// readers are the connections over which gRPC reads the memory of one version, whatever pull the reads are of. A
// puller may begin its pull on one connection and read on others, or go on reading when its pull has ended. When the
// version is gone, each connection that still reads is treated as that of a puller: see vigil.
type readers struct {
	mu sync.Mutex
	// All below are guarded by mu.
	of    map[Connection]*reader
	gone  time.Time   // when the version ended; zero before
	timer *time.Timer // nil before the first use
	looks bool        // tick will run
}

// reader is a connection with the reads that have not ended.
type reader struct {
	reads int
	vigil vigil
}

// begins is the event that a read begins.
func (r *readers) begins(c Connection) {
	r.mu.Lock()
	defer r.mu.Unlock()
	one := r.of[c]
	if one == nil {
		if r.of == nil {
			r.of = make(map[Connection]*reader)
		}
		one = &reader{vigil: vigil{notices: true}}
		r.of[c] = one
		if !r.gone.IsZero() { // it had waited for space
			r.leaveLocked(c, one)
		}
	}
	one.reads++
}

// ends is the event that a read has ended.
func (r *readers) ends(c Connection) {
	r.mu.Lock()
	defer r.mu.Unlock()
	one := r.of[c]
	if one == nil {
		return
	}
	if one.reads--; one.reads > 0 {
		return
	}
	delete(r.of, c)
	if len(r.of) == 0 && r.looks {
		r.looks = false
		r.timer.Stop()
	}
}

// versionGone is the event that the version is not in the catalog any more.
func (r *readers) versionGone() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gone = time.Now()
	for c, one := range r.of {
		r.leaveLocked(c, one)
	}
}

// leaveLocked begins to look whether a connection is still there. What began late has no more time than others.
func (r *readers) leaveLocked(c Connection, one *reader) {
	one.vigil.gone(time.Now(), c.Heard())
	one.vigil.since = r.gone
	r.wakeLocked()
}

// wakeLocked lets tick run after lookEvery, if it would not. Reads that begin must not put it off.
func (r *readers) wakeLocked() {
	if r.looks {
		return
	}
	r.looks = true
	if r.timer == nil {
		r.timer = time.AfterFunc(lookEvery, r.tick)
	} else {
		r.timer.Reset(lookEvery)
	}
}

// tick cuts the connections that do not answer. Reads of responses that gRPC has dropped end when the garbage collector
// has found them, so that is asked for first.
func (r *readers) tick() {
	r.mu.Lock()
	r.looks = false
	now := time.Now()
	collects := now.Sub(r.gone) < leaveWithin+aliveWithin
	all, cut := make([]Connection, 0, len(r.of)), make([]Connection, 0, len(r.of))
	for c, one := range r.of {
		if all = append(all, c); one.vigil.tick(now, c.Heard()) == vigilEnd {
			cut = append(cut, c)
		}
	}
	if len(all) > 0 {
		r.wakeLocked()
	}
	r.mu.Unlock()
	for _, c := range cut {
		c.Cut()
	}
	for _, c := range all {
		if collects {
			c.Collect()
		}
	}
}

// loan is the Lent of a version as the tensors that are lent know it.
type loan struct{ lent *Lent }

// Returned implements tensor.Lender.
func (l loan) Returned() { l.lent.returned() }

// ReadBegins implements tensor.Lender.
func (l loan) ReadBegins(connection any) {
	if c, ok := connection.(Connection); ok {
		l.lent.readers.begins(c)
	}
}

// ReadEnds implements tensor.Lender.
func (l loan) ReadEnds(connection any) {
	if c, ok := connection.(Connection); ok {
		l.lent.readers.ends(c)
	}
}
