package rendezvous

import (
	"sync"

	"github.com/tryst-rdma/tryst/tensor"
)

// entry is a value or a receive that waits in a queue. It has 64 bytes, one
// size class of the allocator and one cache line.
//
// A queue is a ring: the map points to its head, head.prev is its tail.
type entry struct {
	next, prev *entry
	tensor     *tensor.Tensor // of a value
	device     any            // args.Device
	done       DoneFunc       // of a receive; nil in a value
	stop       func() bool    // of a receive: ends the watch of its context
	onHost     bool           // args.OnHost
	dead       bool
	queued     bool
	held       bool // somebody beside the table points to it: never reused
}

func (e *entry) args() Args { return Args{Device: e.device, OnHost: e.onHost} }

func (e *entry) value() Value {
	return Value{Tensor: e.tensor, SendArgs: e.args(), Dead: e.dead}
}

// shard is one part of a table.
type shard struct {
	mu     sync.Mutex
	queues map[string]*entry // head of each key's queue; full text of the key
	free   *entry            // entries for reuse, linked by next
	nfree  int
	peak   int  // most keys since queues was made
	run    gate // callbacks that run
	_      [64]byte
}

// newEntryLocked returns an empty entry, an old one if there is one.
func (s *shard) newEntryLocked() *entry {
	e := s.free
	if e == nil {
		return new(entry)
	}
	s.free, e.next = e.next, nil
	s.nfree--
	return e
}

// recycleLocked keeps an entry that nobody points to for reuse.
func (s *shard) recycleLocked(e *entry) {
	if e.held || s.nfree >= maxFree {
		return
	}
	*e = entry{next: s.free}
	s.free = e
	s.nfree++
}

// insertLocked adds e to the queue of key whose head the caller has just looked
// up, nil when there is none: at the end, or in front.
func (s *shard) insertLocked(key string, head, e *entry, inFront bool) {
	e.queued = true
	if head == nil {
		e.next, e.prev = e, e
		if s.queues == nil {
			s.queues = make(map[string]*entry)
		}
		s.queues[key] = e
		s.peak = max(s.peak, len(s.queues))
		return
	}
	e.next, e.prev = head, head.prev
	head.prev.next, head.prev = e, e
	if inFront {
		s.queues[key] = e
	}
}

// removeLocked takes e, which is queued under key, out of its queue.
func (s *shard) removeLocked(key string, e *entry) {
	e.queued = false
	if e.next == e {
		delete(s.queues, key)
		if len(s.queues) == 0 && s.peak > shrinkAbove {
			s.queues, s.peak = nil, 0
		}
	} else {
		e.next.prev, e.prev.next = e.prev, e.next
		if s.queues[key] == e {
			s.queues[key] = e.next
		}
	}
	e.next, e.prev = nil, nil
}

// call runs a callback that the caller has counted in run.
func (s *shard) call(done DoneFunc, v Value, args Args, err error) {
	defer s.leave(1)
	done(v, args, err)
}

func (s *shard) leave(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.run.leaveLocked(n)
}

// sweep ends everything that waits here with err: receives get it, values are
// dropped. The table must refuse new entries already.
func (s *shard) sweep(err error) {
	s.mu.Lock()
	queues, receives := s.queues, 0
	s.queues, s.free, s.nfree = nil, nil, 0
	for _, head := range queues {
		for e := head; e.queued; e = e.next {
			e.queued = false
			if e.done != nil {
				receives++
			}
		}
	}
	s.run.enterLocked(receives)
	s.mu.Unlock()

	for _, head := range queues {
		for e, more := head, true; more; e, more = e.next, e.next != head {
			if e.done == nil {
				e.tensor.Release()
				continue
			}
			if e.stop != nil {
				e.stop()
			}
			s.call(e.done, Value{}, e.args(), err)
		}
	}
}

// wait returns when no callback runs.
func (s *shard) wait() {
	s.mu.Lock()
	idle := s.run.idleLocked()
	s.mu.Unlock()
	<-idle
}

// gate counts callbacks that run, so that a Close can wait for them. Its
// methods need the lock of what it is part of.
type gate struct {
	n    int
	idle chan struct{} // closed when n becomes 0; nil while nobody waits
}

func (g *gate) enterLocked(n int) { g.n += n }

func (g *gate) leaveLocked(n int) {
	g.n -= n
	if g.n == 0 && g.idle != nil {
		close(g.idle)
		g.idle = nil
	}
}

// idleLocked returns a channel that is closed once nothing runs.
func (g *gate) idleLocked() <-chan struct{} {
	if g.n == 0 {
		c := make(chan struct{})
		close(c)
		return c
	}
	if g.idle == nil {
		g.idle = make(chan struct{})
	}
	return g.idle
}
