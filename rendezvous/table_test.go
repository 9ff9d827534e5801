package rendezvous

import (
	"fmt"
	"testing"
)

// Keys whose hashes are all the same are still told apart by their text, at
// every size of the table.
func TestTableFullHashCollision(t *testing.T) {
	for _, n := range []int{2, fewKeys + 1, 100} {
		s := new(shard)
		text := func(i int) string { return fmt.Sprint("key", i) }
		s.mu.Lock()
		for i := range n {
			if s.headLocked(text(i), 7) != nil {
				t.Fatalf("key %d is there before it was put", i)
			}
			e := s.newEntryLocked(text(i), 7)
			s.insertLocked(nil, e, false)
		}
		for i := range n {
			// From the middle outwards, so that chains are cut everywhere.
			i = (i + n/2) % n
			e := s.headLocked(text(i), 7)
			if e == nil || e.key != text(i) {
				t.Fatalf("%d keys: found %v for %s", n, e, text(i))
			}
			s.removeLocked(e)
			if s.headLocked(text(i), 7) != nil {
				t.Fatalf("%d keys: %s is still there", n, text(i))
			}
		}
		if s.keys != 0 {
			t.Errorf("%d keys are left", s.keys)
		}
		s.mu.Unlock()
	}
}

// An emptied part gives its memory up.
func TestTableShrinks(t *testing.T) {
	s := new(shard)
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []*entry
	for i := range uint32(10_000) {
		e := s.newEntryLocked(fmt.Sprint(i), i)
		s.insertLocked(nil, e, false)
		all = append(all, e)
	}
	if len(s.buckets) < 10_000 {
		t.Errorf("%d buckets for 10000 keys", len(s.buckets))
	}
	for _, e := range all {
		s.removeLocked(e)
		s.recycleLocked(e)
	}
	if len(s.buckets) > shrinkAbove || s.nfree > maxFree {
		t.Errorf("an empty part keeps %d buckets and %d entries", len(s.buckets), s.nfree)
	}
}

func TestHistory(t *testing.T) {
	h := newHistory(3)
	for id := range int64(5) {
		h.add(id, nil)
		h.add(id, errShutdown()) // the first reason stays
	}
	for id := range int64(5) {
		if err := h.find(id); (err != nil) != (id >= 2) {
			t.Errorf("step %d: %v", id, err)
		} else if err != nil && err.Error() != errCleanup(id).Error() {
			t.Errorf("step %d: %v", id, err)
		}
	}
	if len(h.why) != 3 || len(h.ring) != 3 {
		t.Errorf("it holds %d and %d", len(h.why), len(h.ring))
	}
}
