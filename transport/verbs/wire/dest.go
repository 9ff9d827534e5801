package wire

import (
	"encoding/binary"

	"github.com/tryst-rdma/tryst/verbs"
)

// Dest is memory of the asker into which the content is written.
type Dest struct {
	Addr uint64
	Imm  Imm   // comes with the last write on each rail
	N    uint8 // rails; at least 1, at most MaxRails
	// First is the rail that carries the first share of the content, less than N.
	First uint8
	// RKeys has for each rail the key of the memory on its device.
	RKeys [MaxRails]verbs.RKey
}

func (d *Dest) length() int { return 16 + 4*int(d.N) }

func (d *Dest) append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint64(b, d.Addr)
	b = binary.LittleEndian.AppendUint32(b, uint32(d.Imm))
	b = append(b, d.N, d.First, 0, 0)
	for _, k := range d.RKeys[:d.N] {
		b = binary.LittleEndian.AppendUint32(b, uint32(k))
	}
	return b
}

func (d *Dest) parse(r *reader) {
	*d = Dest{Addr: r.uint64(), Imm: Imm(r.uint32()), N: r.uint8(), First: r.uint8()}
	r.zero(2)
	if d.N == 0 || d.N > MaxRails {
		r.fail("gives keys for %d rails: there are 1 to %d", d.N, MaxRails)
		d.N = 0
	} else if d.First >= d.N {
		r.fail("begins on rail %d: there are %d", d.First, d.N)
	}
	for i := range d.N {
		d.RKeys[i] = verbs.RKey(r.uint32())
	}
}
