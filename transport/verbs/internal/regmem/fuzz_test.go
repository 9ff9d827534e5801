package regmem

import (
	"errors"
	"slices"
	"testing"

	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/verbs"
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
	p.awaitEnded()
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

// Bytes are operations: three kinds of devices come and go while tensors are allocated,
// received into and released, and time passes. Each tensor is in memory of its own, which
// has the content that was written, and is registered with each present device of a kind
// that can have it.
func FuzzDevices(f *testing.F) {
	f.Add([]byte{0x00, 0x03, 0x13, 0x04, 0x01, 0x23, 0x05, 0x02, 0x33, 0x00, 0x06, 0x07})
	f.Add([]byte{0x02, 0xf3, 0xe3, 0x04, 0x14, 0x07, 0x07, 0x02, 0x05, 0x02, 0x04, 0x00, 0x04, 0x05, 0x06})
	f.Add([]byte("devices come and go in some order, again and again"))
	f.Fuzz(func(t *testing.T, ops []byte) {
		const limit = 4 * mib
		o := Options{Arena: mib, SendLimit: limit, RecvLimit: limit}
		o.LateWrite = func(w LateWrite) { t.Error(w) }
		m := empty(t, o)
		var devices [3]*Domain
		var pds [3]*fakePD
		type held struct {
			buf  *tensor.Buffer
			into bool
			mark byte
		}
		var all []held
		now := zero
		for i, op := range ops[:min(len(ops), 120)] {
			k, n := int(op%8), 1+int(op/8)<<(i%16)
			switch {
			case k < 3 && devices[k] != nil:
				if err := devices[k].Detach(); err != nil || len(pds[k].open) > 0 {
					t.Fatalf("step %d: %v, %d regions are left", i, err, len(pds[k].open))
				}
				devices[k] = nil
			case k < 3:
				pds[k] = newFakePD()
				devices[k] = attachPD(t, m, []verbs.PD{pds[0], pds[1], sharingPD{pds[2]}}[k], pds[k], []verbs.DeviceInfo{leasing, hardware, leasing}[k])
			case k < 6:
				from := m.Allocator()
				if d := devices[i%3]; k == 5 && d != nil {
					from = d.ReceiveAllocator()
				}
				buf, err := from.Allocate(n)
				if err != nil {
					if !exhausted(err) && !errors.Is(err, verbs.ErrClosed) {
						t.Fatal(err)
					}
					continue
				}
				b := buf.Bytes()
				b[0], b[n-1] = byte(i), byte(i)
				all = append(all, held{buf, from != m.Allocator(), byte(i)})
			case k == 6 && len(all) > 0:
				x := n % len(all)
				all[x].buf.Release()
				all = slices.Delete(all, x, x+1)
			default:
				now = now.Add(DefaultIdle)
				sweep(t, m, now)
				m.sending.awaitEnded()
			}
			for _, h := range all {
				b := h.buf.Bytes()
				if b[0] != h.mark || b[len(b)-1] != h.mark {
					t.Fatalf("step %d: somebody else wrote to a tensor", i)
				}
				arena := blockOf(h.buf).arena
				for k, d := range devices {
					if d == nil {
						continue
					}
					p, ok := d.Find(h.buf, b)
					mem := pds[k].at(p, 0)
					if ok && (mem == nil || &mem[0] != &b[0] || len(mem) != len(b)) {
						t.Fatalf("step %d: device %d sends something else", i, k)
					}
					can := arena.kind != goHeap || k != 1
					if h.into {
						can = can && arena.section == d.receive
					}
					if ok != can {
						t.Fatalf("step %d: registered with device %d: %v, want %v", i, k, ok, can)
					}
				}
			}
			check(t, &m.sending)
			check(t, &m.receiving)
			if s := m.Stats(zero); m.sending.mapped > limit || m.receiving.mapped > limit || s.Sending.Buffers+s.Receiving.Buffers != int64(len(all)) {
				t.Fatalf("step %d: %+v, %d tensors are held", i, s, len(all))
			}
		}
		for _, h := range all {
			h.buf.Release()
		}
	})
}
