package wire

import (
	"encoding/binary"
	"slices"
)

// Eager is sent by the responder. It has a value with its content, which ends the message.
type Eager struct {
	Header
	ID      uint64
	Value   Value
	Content []byte // Value.Size bytes
}

// HeadLength returns the length in bytes of all but the content.
func (m *Eager) HeadLength() int { return m.length() + idSize + m.Value.length() }

// AppendHead encodes all but the content, of which the caller appends Value.Size bytes.
func (m *Eager) AppendHead(b []byte) []byte {
	b = m.append(b, KindEager, 0, m.HeadLength()+int(m.Value.Size)) //nolint:gosec // at most the eager limit
	return m.Value.append(binary.LittleEndian.AppendUint64(b, m.ID))
}

// Length returns the length of the message in bytes.
func (m *Eager) Length() int { return m.HeadLength() + len(m.Content) }

// Append encodes the message and appends it to b.
func (m *Eager) Append(b []byte) []byte { return append(m.AppendHead(b), m.Content...) }

// Parse decodes b, to which m then refers.
func (m *Eager) Parse(b []byte) error {
	_, r := m.parse(b, KindEager)
	if b := r.bytes(idSize + valueFixed); b != nil {
		m.ID = binary.LittleEndian.Uint64(b)
		m.Value.parseFrom(b[idSize:], &r)
	}
	if r.err == nil && m.Value.Size != uint64(len(r.rest)) {
		r.fail("gives its content as %d bytes, and %d follow", m.Value.Size, len(r.rest))
	}
	m.Content = slices.Clip(r.rest)
	return r.err
}
