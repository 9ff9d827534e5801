package channel

// ref is the index of a record in a slab. Records have indexes and not pointers, so that a
// channel can be copied (Clone) and records are reused without allocation.
type ref int32

const none ref = -1

// node is embedded in a record. It chains the record into one list of its slab.
type node struct {
	prev, next ref
	list       listID
}

func (n *node) neighbours() *node { return n }

// listID identifies a list of a slab. The lists are declared next to the record type.
type listID uint8

const (
	noList   listID = 0 // in use, and in no list
	freeList listID = 255
)

type list struct {
	first, last ref
	n           int
}

// slab is a set of records, each in at most one of a few ordered lists.
type slab[T any, P interface {
	*T
	neighbours() *node
}] struct {
	items []T
	free  ref    // first record that is not in use
	n     int    // records in use
	lists []list // by listID
	looks int    // accesses to records: the cost of an event, for tests
}

// newSlab returns an empty slab with the lists up to last.
func newSlab[T any, P interface {
	*T
	neighbours() *node
}](last listID) slab[T, P] {
	s := slab[T, P]{free: none, lists: make([]list, last+1)}
	for i := range s.lists {
		s.lists[i] = list{first: none, last: none}
	}
	return s
}

// at returns a record. The pointer is valid until the next add.
func (s *slab[T, P]) at(r ref) P {
	s.looks++
	return P(&s.items[r])
}

// add returns an unused record, in no list. The caller resets its contents.
func (s *slab[T, P]) add() ref {
	r := s.free
	if r == none {
		r = ref(len(s.items)) //nolint:gosec // bounded by MaxWaiting
		s.items = append(s.items, *new(T))
	} else {
		s.free = s.at(r).neighbours().next
	}
	s.n++
	*s.at(r).neighbours() = node{prev: none, next: none}
	return r
}

// remove frees a record.
func (s *slab[T, P]) remove(r ref) {
	s.unlink(r)
	*s.at(r).neighbours() = node{prev: none, next: s.free, list: freeList}
	s.free = r
	s.n--
}

// move moves a record to the end of a list, or out of its list with noList.
func (s *slab[T, P]) move(r ref, to listID) {
	s.unlink(r)
	if to == noList {
		return
	}
	n, l := s.at(r).neighbours(), &s.lists[to]
	n.list, n.prev, n.next = to, l.last, none
	if l.last == none {
		l.first = r
	} else {
		s.at(l.last).neighbours().next = r
	}
	l.last = r
	l.n++
}

func (s *slab[T, P]) unlink(r ref) {
	n := s.at(r).neighbours()
	if n.list == noList {
		return
	}
	l := &s.lists[n.list]
	if n.prev == none {
		l.first = n.next
	} else {
		s.at(n.prev).neighbours().next = n.next
	}
	if n.next == none {
		l.last = n.prev
	} else {
		s.at(n.next).neighbours().prev = n.prev
	}
	l.n--
	*n = node{prev: none, next: none}
}

// first returns the oldest record of a list, none when it is empty.
func (s *slab[T, P]) first(l listID) ref { return s.lists[l].first }

// each calls f with every record in use. f may remove it.
func (s *slab[T, P]) each(f func(ref, P)) {
	for i := range s.items {
		s.looks++
		if p := P(&s.items[i]); p.neighbours().list != freeList {
			f(ref(i), p) //nolint:gosec // bounded by MaxWaiting
		}
	}
}
