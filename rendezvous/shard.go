package rendezvous

import (
	"sync"

	"github.com/tryst-rdma/tryst/tensor"
)

// entry is a value or a receive that waits in a queue. It has 96 bytes, a size
// class of the allocator.
//
// A queue is a ring through next and prev. Its head, whose prev is the tail, is
// the queue's place in the table and is linked with other heads by chain.
type entry struct {
	next, prev *entry
	chain      *entry // of a head: another key in the same bucket
	key        string // full text
	tensor     *tensor.Tensor
	args       Args
	done       DoneFunc    // of a receive; nil in a value
	stop       func() bool // of a receive: ends the watch of its context
	hash       uint32
	at         uint32 // of a value: its place among those of its key
	dead       bool
	queued     bool
	held       bool // somebody beside the table points to it: never reused
}

func (e *entry) value() Value {
	return Value{Tensor: e.tensor, SendArgs: e.args, Dead: e.dead, at: e.at}
}

// shard is one part of a table: a hash table with chains. A Send or Recv touches
// two cache lines that others write, the shard's first and its entry's. A Go map
// would touch more, and hash the key again at each look-up and change; measured,
// a matched pair then took a quarter longer.
type shard struct {
	mu       sync.Mutex
	first    *entry               // the only bucket while there are few keys
	buckets  []*entry             // a power of two of them; nil while there are few keys
	free     *entry               // entries for reuse, linked by chain
	returned map[string]*returned // by key; nil when there are none
	keys     int32
	nfree    int32
	sent     uint32 // counts the values that were sent, for their places
	run      gate   // callbacks that run
	_        [40]byte
}

// headLocked returns the head of a key's queue, or nil. The full text decides.
func (s *shard) headLocked(key string, hash uint32) *entry {
	e := *s.bucketLocked(hash)
	for e != nil && (e.hash != hash || e.key != key) {
		e = e.chain
	}
	return e
}

func (s *shard) bucketLocked(hash uint32) **entry {
	if s.buckets == nil {
		return &s.first
	}
	return &s.buckets[int(hash)&(len(s.buckets)-1)]
}

// growLocked puts the keys into n buckets, a power of two.
func (s *shard) growLocked(n int) {
	old := append(s.buckets, s.first)
	s.first, s.buckets = nil, make([]*entry, n)
	for _, e := range old {
		for e != nil {
			b, chain := s.bucketLocked(e.hash), e.chain
			e.chain, *b = *b, e
			e = chain
		}
	}
}

// newEntryLocked returns an entry for a key, an old one if there is one.
func (s *shard) newEntryLocked(key string, hash uint32) *entry {
	e := s.free
	if e == nil {
		e = new(entry)
	} else {
		s.free, e.chain = e.chain, nil
		s.nfree--
	}
	e.key, e.hash = key, hash
	return e
}

// recycleLocked keeps an entry that nobody points to for reuse.
func (s *shard) recycleLocked(e *entry) {
	if e.held || s.nfree == maxFree {
		return
	}
	*e = entry{chain: s.free}
	s.free = e
	s.nfree++
}

// insertLocked adds e to the queue of its key, whose head the caller has just
// looked up, nil when there is none.
func (s *shard) insertLocked(head, e *entry) {
	e.queued = true
	if head == nil {
		e.next, e.prev = e, e
		if s.keys++; int(s.keys) > max(fewKeys, len(s.buckets)) {
			s.growLocked(max(2*fewKeys, 2*len(s.buckets)))
		}
		b := s.bucketLocked(e.hash)
		e.chain, *b = *b, e
		return
	}
	e.next, e.prev = head, head.prev
	head.prev.next, head.prev = e, e
}

// removeLocked takes e out of its queue.
func (s *shard) removeLocked(e *entry) {
	e.queued = false
	if e.next == e {
		s.replaceLocked(e, nil)
		if s.keys--; s.keys == 0 && len(s.buckets) > shrinkAbove {
			s.buckets = nil
		}
	} else {
		e.next.prev, e.prev.next = e.prev, e.next
		s.replaceLocked(e, e.next)
	}
	e.next, e.prev = nil, nil
}

// replaceLocked makes head, nil for none, the head of the queue whose head is
// old. If old is not a head nothing happens.
func (s *shard) replaceLocked(old, head *entry) {
	for b := s.bucketLocked(old.hash); *b != nil; b = &(*b).chain {
		if *b != old {
			continue
		}
		if head == nil {
			*b = old.chain
		} else {
			head.chain, *b = old.chain, head
		}
		old.chain = nil
		return
	}
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
	var waiting []*entry
	receives := 0
	s.mu.Lock()
	for _, head := range append(s.buckets, s.first) {
		for ; head != nil; head = head.chain {
			for e := head; e.queued; e = e.next {
				e.queued = false
				waiting = append(waiting, e)
				if e.done != nil {
					receives++
				}
			}
		}
	}
	for _, values := range s.returned {
		waiting = append(waiting, *values...)
	}
	s.first, s.buckets, s.free, s.keys, s.returned = nil, nil, nil, 0, nil
	s.run.enterLocked(receives)
	s.mu.Unlock()

	for _, e := range waiting {
		if e.done == nil {
			e.tensor.Release()
			continue
		}
		if e.stop != nil {
			e.stop()
		}
		s.call(e.done, Value{}, e.args, err)
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
