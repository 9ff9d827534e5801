package regmem

import (
	"bytes"
	"fmt"
)

// patternByte fills memory that nobody has. It is no small integer, no text and,
// as a float, a number that no tensor of a test has.
const patternByte = 0xA7

// remembered is how many released blocks are kept in mind, to name the one that
// was written to.
const remembered = 4096

// LateWrite is a write to memory that nobody had.
type LateWrite struct {
	Pool  string
	Addr  uint64 // of the first byte that changed, as the device numbers it
	Value byte   // that is there now
	// Block is the block that the byte was part of when it was last handed out:
	// its number in the order of handing out, its size, and where in it the byte
	// lies. Number 0: it has not been handed out before, or that was too long ago.
	Number uint64
	Size   int
	Offset int
}

func (w LateWrite) String() string {
	if w.Number == 0 {
		return fmt.Sprintf("the %s pool's memory at %#x was written (%#x), which nobody has had", w.Pool, w.Addr, w.Value)
	}
	return fmt.Sprintf("byte %d of block %d of the %s pool (%d bytes, at %#x) was written after its release (%#x)",
		w.Offset, w.Number, w.Pool, w.Size, w.Addr-uint64(w.Offset), w.Value)
}

// pattern watches memory that nobody has. nil watches nothing. All but fill are
// called with the pool's lock held.
type pattern struct {
	report func(LateWrite)
	number uint64
	past   []lease // the last released blocks; a ring from next on once full
	next   int
}

// lease is a block while it was handed out.
type lease struct {
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

// handOut looks whether b is as it was left.
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
		w := LateWrite{Pool: pool.name, Addr: b.arena.mr.Addr() + uint64(b.off+i), Value: v}
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

// release remembers b and fills it.
func (p *pattern) release(b *block) {
	if p == nil {
		return
	}
	p.fill(b.bytes())
	l := lease{number: b.number, arena: b.arena, off: b.off, size: b.size}
	if len(p.past) < remembered {
		p.past = append(p.past, l)
		return
	}
	p.past[p.next] = l
	p.next = (p.next + 1) % remembered
}
