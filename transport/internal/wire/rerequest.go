package wire

import "encoding/binary"

// ReRequest (the asker's) answers META with a destination; or with none, when it
// has no memory: the sender forgets the request then, and is asked over another
// wire.
type ReRequest struct {
	Header
	ID      uint64
	HasDest bool
	Dest    Dest // with HasDest
}

// Length is its length in bytes.
func (m *ReRequest) Length() int {
	n := m.length() + idSize
	if m.HasDest {
		n += m.Dest.length()
	}
	return n
}

// Append writes it to b.
func (m *ReRequest) Append(b []byte) []byte {
	var f flags
	if m.HasDest {
		f = flagDest
	}
	b = m.append(b, KindReRequest, f, m.Length())
	b = binary.LittleEndian.AppendUint64(b, m.ID)
	if m.HasDest {
		b = m.Dest.append(b)
	}
	return b
}

// Parse reads it. It refers to b.
func (m *ReRequest) Parse(b []byte) error {
	f, r := m.parse(b, KindReRequest)
	m.ID = r.uint64()
	if m.HasDest = f&flagDest != 0; m.HasDest {
		m.Dest.parse(&r)
	}
	return r.end()
}
