package wire

import "encoding/binary"

// Meta is sent by the responder. It describes the value of a receive for which the responder has
// no destination. The requester answers with REREQUEST, which gives one.
type Meta struct {
	Header
	ID    uint64
	Value Value
}

// Length returns the length of the message in bytes.
func (m *Meta) Length() int { return m.length() + idSize + m.Value.length() }

// Append encodes the message and appends it to b.
func (m *Meta) Append(b []byte) []byte {
	b = m.append(b, KindMeta, 0, m.Length())
	return m.Value.append(binary.LittleEndian.AppendUint64(b, m.ID))
}

// Parse decodes b, to which m then refers.
func (m *Meta) Parse(b []byte) error {
	_, r := m.parse(b, KindMeta)
	m.ID = r.uint64()
	m.Value.parse(&r)
	return r.end()
}
