package wire

import "encoding/binary"

// Meta (the sender's): the value is there, and its destination is not. It is
// asked for again, with one.
type Meta struct {
	Header
	ID    uint64
	Value Value
}

// Length is its length in bytes.
func (m *Meta) Length() int { return m.length() + idSize + m.Value.length() }

// Append writes it to b.
func (m *Meta) Append(b []byte) []byte {
	b = m.append(b, KindMeta, 0, m.Length())
	return m.Value.append(binary.LittleEndian.AppendUint64(b, m.ID))
}

// Parse reads it. It refers to b.
func (m *Meta) Parse(b []byte) error {
	_, r := m.parse(b, KindMeta)
	m.ID = r.uint64()
	m.Value.parse(&r)
	return r.end()
}
