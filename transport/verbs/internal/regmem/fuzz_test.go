package regmem

import (
	"slices"
	"testing"

	"github.com/tryst-rdma/tryst/tensor"
)

// Bytes are operations, and the list of allocated blocks is the model. Blocks do not
// overlap, have the requested size, lie in registered memory and within the limit. When
// all are freed, each arena is one free block.
func FuzzPool(f *testing.F) {
	f.Add([]byte{0x10, 0x20, 0x30, 0x01, 0x00, 0x02})
	f.Add([]byte{0xf0, 0xff, 0x01, 0xf1, 0x02, 0xe0, 0x03, 0x00, 0x00, 0x00})
	f.Add([]byte("allocate and release, in some order, again and again"))
	f.Fuzz(func(t *testing.T, ops []byte) {
		const limit = 4 * mib
		o := Options{Arena: mib, SendLimit: limit, RecvLimit: mib, Start: -1}
		o.LateWrite = func(w LateWrite) { t.Error(w) }
		m, pd := newMemory(t, o)
		type held struct {
			buf *tensor.Buffer
			b   *block
		}
		var all []held
		for i, op := range ops[:min(len(ops), 200)] {
			if op%4 == 0 && len(all) > 0 {
				k := int(op/4) % len(all)
				all[k].buf.Release()
				all = slices.Delete(all, k, k+1)
			} else {
				n := 1 + int(op)<<(op%15)
				buf, err := m.Allocator().Allocate(n)
				if err != nil {
					if !exhausted(err) {
						t.Fatal(err)
					}
					if len(all) == 0 {
						t.Fatalf("step %d: nothing is held, and %d bytes: %v", i, n, err)
					}
					continue
				}
				all = append(all, held{buf, blockOf(buf)})
				if buf.Len() != n || cap(buf.Bytes()) < n {
					t.Fatalf("step %d: %d bytes in place of %d", i, buf.Len(), n)
				}
				if p, ok := m.Find(buf, buf.Bytes()); !ok || pd.at(p, 0) == nil {
					t.Fatalf("step %d: %d bytes that are not registered", i, n)
				}
			}
			var sum int64
			for k, h := range all {
				sum += int64(h.b.size)
				for _, g := range all[:k] {
					if h.b == g.b || h.b.arena == g.b.arena && h.b.off < g.b.off+g.b.size && g.b.off < h.b.off+h.b.size {
						t.Fatalf("step %d: two blocks overlap", i)
					}
				}
			}
			if s := m.Stats(zero).Sending; s.InUse != sum || s.Buffers != int64(len(all)) || s.Registered > limit {
				t.Fatalf("step %d: %+v, held are %d bytes", i, s, sum)
			}
			check(t, &m.sending)
		}
		for _, h := range all {
			h.buf.Release()
		}
		for _, a := range m.sending.arenas {
			if a.used != 0 || a.first.size != len(a.mem) || a.first.out {
				t.Fatalf("an arena of %d bytes is not whole: first block %d", len(a.mem), a.first.size)
			}
		}
	})
}

// check compares the lists of a pool with its arenas.
func check(t *testing.T, p *pool) {
	t.Helper()
	free := map[*block]bool{}
	for _, section := range p.sections {
		for c, b := range section.free.free {
			if (b != nil) != (section.free.some[c/64]>>(c%64)&1 == 1) {
				t.Fatalf("class %d: its bit is wrong", c)
			}
			for ; b != nil; b = b.next {
				if floorClass(b.size) != c || b.out || free[b] || b.arena.section != section {
					t.Fatalf("class %d has a block of %d bytes, handed out %v", c, b.size, b.out)
				}
				free[b] = true
			}
		}
	}
	var mapped int64
	for _, a := range p.arenas {
		mapped += int64(len(a.mem))
		at, used := 0, 0
		var below *block
		for b := a.first; b != nil; b = b.above {
			if b.off != at || b.size <= 0 || b.below != below || b.arena != a {
				t.Fatalf("the chain of an arena is broken at %d", at)
			}
			if b.out {
				used += b.size
			} else if !a.own {
				if !free[b] {
					t.Fatalf("a free block of %d bytes is in no list", b.size)
				}
				if below != nil && !below.out {
					t.Fatal("two free neighbours")
				}
				delete(free, b)
			}
			at, below = at+b.size, b
		}
		if at != len(a.mem) || used != a.used {
			t.Fatalf("an arena of %d bytes has %d in blocks; %d are used, it says %d", len(a.mem), at, used, a.used)
		}
	}
	if len(free) != 0 || mapped != p.mapped {
		t.Fatalf("%d free blocks belong to no arena; %d bytes are mapped, it says %d", len(free), mapped, p.mapped)
	}
}

func TestClasses(t *testing.T) {
	for c := 1; c < 500; c++ {
		size := classSize(c)
		if size <= classSize(c-1) || size%granule != 0 || floorClass(size) != c || ceilClass(size) != c || ceilClass(classSize(c-1)+1) != c ||
			floorClass(size-granule) != c-1 {
			t.Fatalf("class %d of %d bytes", c, size)
		}
		if c >= exactClasses && (size-classSize(c-1))*classSteps > size {
			t.Fatalf("class %d wastes %d of %d bytes", c, size-classSize(c-1), size)
		}
	}
}
