package wire

import (
	"encoding/binary"

	"github.com/tryst-rdma/tryst/verbs"
)

// Dest is memory of the requester into which the responder writes the content.
type Dest struct {
	Imm Imm   // comes with the last write on each rail
	N   uint8 // rails; at least 1, at most MaxRails
	// First is the rail that carries the first share of the content, less than N.
	First uint8
	// Rails has the address and the key of the memory for each rail: rails may be ports
	// of different devices, which have their own. Zero for a rail that does not carry
	// the content.
	Rails [MaxRails]Remote
}

// Remote is where the writes of one rail go.
type Remote struct {
	Addr uint64 // of the content's first byte, whichever share the rail carries
	RKey verbs.RKey
}

const remoteSize = 12

func (d *Dest) length() int { return 8 + remoteSize*int(d.N) }

func (d *Dest) append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(d.Imm))
	b = append(b, d.N, d.First, 0, 0)
	for i := range d.Rails[:d.N] {
		b = binary.LittleEndian.AppendUint64(b, d.Rails[i].Addr)
		b = binary.LittleEndian.AppendUint32(b, uint32(d.Rails[i].RKey))
	}
	return b
}

func (d *Dest) parse(r *reader) {
	*d = Dest{Imm: Imm(r.uint32()), N: r.uint8(), First: r.uint8()}
	r.zero(2)
	if d.N == 0 || d.N > MaxRails {
		r.fail("has a destination for %d rails, want 1 to %d", d.N, MaxRails)
		d.N = 0
	} else if d.First >= d.N {
		r.fail("has a destination that begins on rail %d of %d", d.First, d.N)
	}
	for i := range d.Rails[:d.N] {
		d.Rails[i] = Remote{Addr: r.uint64(), RKey: verbs.RKey(r.uint32())}
	}
}
