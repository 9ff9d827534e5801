package rendezvous

import (
	"sync"

	"github.com/tryst-rdma/tryst/tensor"
)

// entry is a value or a receive in a queue. It has 96 bytes, a size class of
// Go's allocator.
//
// A queue is a ring through next and prev. The table points to the head of the
// ring; prev of the head is the tail. chain links the heads of one bucket.
type entry struct {
	next, prev *entry
	chain      *entry // of a head: the next key in the same bucket
	key        string // full text
	tensor     *tensor.Tensor
	args       Args
	done       DoneFunc    // of a receive; nil in a value
	stop       func() bool // of a receive: ends the watch of its context
	hash       uint32
	seq        uint32 // of a value: as Value.seq
	since      uint32 // of a receive: when it was queued, in units of sinceUnit since Local.born
	dead       bool
	queued     bool
	later      bool // of a receive: it does not have the value yet when it is matched
	held       bool // something else than the table points to it: never reused
}

func (e *entry) value() Value {
	return Value{Tensor: e.tensor, SendArgs: e.args, Dead: e.dead, seq: e.seq}
}

// shard is one part of a table: a hash table with chaining. A Send or Recv
// touches two cache lines that other cores write: one of the shard and one of
// the entry. A Go map would touch more, and hash the key again at each look-up
// and change.
type shard struct {
	mu       sync.Mutex           // protects all fields and the queued entries
	first    *entry               // the only bucket while there are few keys
	buckets  []*entry             // a power of two of them; nil while there are few keys
	free     *entry               // entries for reuse, linked by chain
	restored map[string]*restored // by key; nil when there are none
	keys     int32                // number of queues
	nfree    int32                // length of free
	sent     uint32               // number of values sent, modulo 2³²
	run      gate                 // running callbacks
	_        [40]byte             // fills the second cache line
}

// headLocked returns the head of a key's queue, or nil. It compares the full
// text.
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

// growLocked distributes the keys over n buckets, a power of two.
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

// newEntryLocked returns an entry for a key, a recycled one if there is one.
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

// recycleLocked keeps an entry for reuse, unless it is held.
func (s *shard) recycleLocked(e *entry) {
	if e.held || s.nfree == maxFree {
		return
	}
	*e = entry{chain: s.free}
	s.free = e
	s.nfree++
}

// insertLocked adds e to the queue of its key. head is the result of headLocked
// for that key.
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

// removeLocked removes e from its queue.
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

// replaceLocked replaces the head old of a queue by head, or removes the queue
// from the table when head is nil. It does nothing if old is not a head.
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

// call runs a callback that the caller has entered in run.
func (s *shard) call(done DoneFunc, v Value, args Args, err error) {
	defer s.leave(1)
	done(v, args, err)
}

func (s *shard) leave(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.run.leaveLocked(n)
}

// eachLocked calls f for all entries.
func (s *shard) eachLocked(f func(*entry)) {
	for _, head := range append(s.buckets, s.first) {
		for ; head != nil; head = head.chain {
			for e, next := head, (*entry)(nil); next != head; e = next {
				next = e.next
				f(e)
			}
		}
	}
	for _, values := range s.restored {
		for _, e := range *values {
			f(e)
		}
	}
}

// sweep ends the waiting receives with err and drops the values. The table must
// refuse new entries already.
func (s *shard) sweep(err error) {
	var waiting []*entry
	receives := 0
	s.mu.Lock()
	s.eachLocked(func(e *entry) {
		e.queued = false
		waiting = append(waiting, e)
		if e.done != nil {
			receives++
		}
	})
	s.first, s.buckets, s.free, s.keys, s.restored = nil, nil, nil, 0, nil
	s.run.enterLocked(receives)
	s.mu.Unlock()

	for _, e := range waiting {
		if e.done == nil {
			e.value().drop(err)
			continue
		}
		if e.stop != nil {
			e.stop()
		}
		s.call(e.done, Value{}, e.args, err)
	}
}

// wait returns when no callback is running.
func (s *shard) wait() {
	s.mu.Lock()
	idle := s.run.idleLocked()
	s.mu.Unlock()
	<-idle
}

// gate counts running callbacks, so that a Close can wait for them. The lock of
// the struct that contains it guards it.
type gate struct {
	n    int
	idle chan struct{} // closed when n becomes 0; nil while no Close waits
}

func (g *gate) enterLocked(n int) { g.n += n }

func (g *gate) leaveLocked(n int) {
	g.n -= n
	if g.n == 0 && g.idle != nil {
		close(g.idle)
		g.idle = nil
	}
}

// idleLocked returns a channel that is closed once no callback is running.
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
