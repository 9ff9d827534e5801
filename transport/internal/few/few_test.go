package few

import (
	"maps"
	"testing"
)

// FuzzMapIsAMap does the same to a Map and to a map of Go's: each byte is an operation
// and a key.
func FuzzMapIsAMap(f *testing.F) {
	f.Add([]byte("\x00\x01\x02\x03\x04\x05\x06\x07\x40\x44\x00\x04\x84\x80\xc0\x00"))
	f.Fuzz(func(t *testing.T, ops []byte) {
		var m Map[byte, int]
		want := make(map[byte]int)
		for i, op := range ops {
			switch key := op & 15; op >> 4 {
			case 15:
				m.Clear()
				clear(want)
			case 14:
				c := m.Clone()
				m.Put(key, -1) // does not show in the copy
				m.Delete(key ^ 1)
				m = c
			case 13: // take out what is visited
				for k := range m.All() {
					if k != key {
						m.Delete(k)
						delete(want, k)
					}
				}
			case 8, 9, 10, 11, 12:
				m.Delete(key)
				delete(want, key)
			default:
				m.Put(key, i)
				want[key] = i
			}
			if got := maps.Collect(m.All()); !maps.Equal(got, want) || m.Len() != len(want) {
				t.Fatalf("after %d operations: %d entries, %v, want %v", i+1, m.Len(), got, want)
			}
			for key := range byte(16) {
				got, ok := m.Get(key)
				if w, is := want[key]; got != w || ok != is {
					t.Fatalf("after %d operations: key %d: %d, %t, want %d, %t", i+1, key, got, ok, w, is)
				}
			}
		}
	})
}

// TestVisitsNoneTwice takes all entries out while they are visited.
func TestVisitsNoneTwice(t *testing.T) {
	for n := range 3 * size {
		var m Map[int, string]
		for k := range n {
			m.Put(k, "")
		}
		visits := make(map[int]int)
		for k := range m.All() {
			visits[k]++
			m.Delete(k)
		}
		for k := range n {
			if visits[k] != 1 {
				t.Errorf("of %d: %d was visited %d times", n, k, visits[k])
			}
		}
		if m.Len() != 0 {
			t.Errorf("of %d: %d are left", n, m.Len())
		}
	}
}
