package wire

import "encoding/binary"

// ReRequest is sent by the requester. It answers META with a destination. It has none when the
// requester has no memory: then the responder forgets the request, and the requester
// repeats it over gRPC.
type ReRequest struct {
	Header
	ID      uint64
	HasDest bool
	Dest    Dest // with HasDest
}

// Length returns the length of the message in bytes.
func (m *ReRequest) Length() int {
	n := m.length() + idSize
	if m.HasDest {
		n += m.Dest.length()
	}
	return n
}

// Append encodes the message and appends it to b.
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

// Parse decodes b, to which m then refers.
func (m *ReRequest) Parse(b []byte) error {
	f, r := m.parse(b, KindReRequest)
	m.ID = r.uint64()
	if m.HasDest = f&flagDest != 0; m.HasDest {
		m.Dest.parse(&r)
	}
	return r.end()
}
