package regmem

import (
	"bytes"
	"fmt"
)

// patternByte fills free memory. It is not a small integer or text, and as part of a float
// it gives a number that tensors of tests do not have.
const patternByte = 0xA7

// remembered is how many freed blocks are remembered, to name the one that was written
// to.
const remembered = 4096

// LateWrite is a write to free memory.
type LateWrite struct {
	Pool  string
	Addr  uint64 // of the first byte that changed, as the device addresses it
	Value byte   // of that byte now
	// Number, Size and Offset describe the block that contained the byte when it was last
	// allocated: its number in the order of allocation, its size in bytes, and the byte's
	// place in it. Number is 0 when the byte was never allocated, or too long ago.
	Number uint64
	Size   int
	Offset int
}

func (w LateWrite) String() string {
	if w.Number == 0 {
		return fmt.Sprintf("the %s pool's memory at %#x was written (%#x) while it was free", w.Pool, w.Addr, w.Value)
	}
	return fmt.Sprintf("byte %d of block %d of the %s pool (%d bytes, at %#x) was written after its release (%#x)",
		w.Offset, w.Number, w.Pool, w.Size, w.Addr-uint64(w.Offset), w.Value)
}

// pattern watches free memory. nil watches nothing. All methods but fill are called with
// the pool's lock held.
type pattern struct {
	report func(LateWrite)
	number uint64
	past   []pastBlock // the last freed blocks; once full, a ring that begins at next
	next   int
}

// pastBlock is a block as it was while allocated.
type pastBlock struct {
	number uint64
	arena  *arena
	off    int
	size   int
}

func (p *pattern) fill(data []byte) {
	if p == nil {
		return
	}
	for n := copy(data, []byte{patternByte}); n > 0 && n < len(data); n *= 2 {
		copy(data[n:], data[:n])
	}
}

// handOut checks that b was not written to while it was free.
func (p *pattern) handOut(pool *pool, b *block) {
	if p == nil {
		return
	}
	p.number++
	b.number = p.number
	data := b.bytes()
	if bytes.Count(data, []byte{patternByte}) == len(data) {
		return
	}
	for i, v := range data {
		if v == patternByte {
			continue
		}
		w := LateWrite{Pool: pool.name, Addr: b.arena.addr() + uint64(b.off+i), Value: v}
		for k := range p.past { // newest first
			l := p.past[(p.next-1-k+2*len(p.past))%len(p.past)]
			if at := b.off + i; l.arena == b.arena && l.off <= at && at < l.off+l.size {
				w.Number, w.Size, w.Offset = l.number, l.size, at-l.off
				break
			}
		}
		p.report(w)
		return
	}
}

// release remembers b, which is being freed, and fills it.
func (p *pattern) release(b *block) {
	if p == nil {
		return
	}
	p.fill(b.bytes())
	l := pastBlock{number: b.number, arena: b.arena, off: b.off, size: b.size}
	if len(p.past) < remembered {
		p.past = append(p.past, l)
		return
	}
	p.past[p.next] = l
	p.next = (p.next + 1) % remembered
}
