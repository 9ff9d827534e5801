// Package few has a map for tables that mostly hold next to nothing: a peer that is asked
// for one small tensor after the other has one receive under way, and six tables know of
// it. Go's map is called for each look-up, and calls several functions itself: of the basic
// blocks that both sides ran in Go for a receive of 8 bytes a tenth were these.
package few

import "iter"

// size is how many entries need no map: a receive, the one before it, which its peer has
// not finished yet, and as many again.
const size = 4

// Map is a map. Its zero value is empty and ready; a copy shares what it holds with the
// original (Clone).
type Map[K comparable, V any] struct {
	n    int // how many of the following there are
	few  [size]pair[K, V]
	many map[K]V // the others; nil when there never were any
}

type pair[K comparable, V any] struct {
	key   K
	value V
}

// Len is how many entries it has.
func (m *Map[K, V]) Len() int { return m.n + len(m.many) }

// Get returns the value of a key, and whether there is one.
func (m *Map[K, V]) Get(key K) (value V, ok bool) {
	for i := range m.few[:m.n] {
		if p := &m.few[i]; p.key == key {
			return p.value, true
		}
	}
	if len(m.many) > 0 {
		value, ok = m.many[key]
	}
	return value, ok
}

// Put sets the value of a key.
func (m *Map[K, V]) Put(key K, value V) {
	for i := range m.few[:m.n] {
		if p := &m.few[i]; p.key == key {
			p.value = value
			return
		}
	}
	if m.n < size {
		if len(m.many) > 0 {
			delete(m.many, key)
		}
		m.few[m.n] = pair[K, V]{key, value}
		m.n++
		return
	}
	if m.many == nil {
		m.many = make(map[K]V)
	}
	m.many[key] = value
}

// Delete takes a key out, if it is there.
func (m *Map[K, V]) Delete(key K) {
	for i := range m.few[:m.n] {
		if m.few[i].key == key {
			m.n--
			m.few[i] = m.few[m.n]
			m.few[m.n] = pair[K, V]{}
			return
		}
	}
	if len(m.many) > 0 {
		delete(m.many, key)
	}
}

// Clear takes all keys out.
func (m *Map[K, V]) Clear() { *m = Map[K, V]{} }

// All are the entries, in no order. The one that is visited may be taken out; nothing else
// may change meanwhile.
func (m *Map[K, V]) All() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		for i := m.n - 1; i >= 0; i-- { // the last one takes the place of one that is taken out
			if i < m.n && !yield(m.few[i].key, m.few[i].value) {
				return
			}
		}
		for key, value := range m.many {
			if !yield(key, value) {
				return
			}
		}
	}
}

// Clone is a copy that shares no table with m.
func (m *Map[K, V]) Clone() Map[K, V] {
	n := Map[K, V]{n: m.n, few: m.few}
	for key, value := range m.many {
		n.Put(key, value)
	}
	return n
}
