package wire

import (
	"encoding/binary"
	"slices"
)

// Eager (the sender's) is a whole value. The content is the end of the message.
type Eager struct {
	Header
	ID      uint64
	Value   Value
	Content []byte // Value.Size bytes
}

// HeadLength is the length in bytes of all but the content.
func (m *Eager) HeadLength() int { return m.length() + idSize + m.Value.length() }

// AppendHead writes all but the content to b. Value.Size bytes of content follow.
func (m *Eager) AppendHead(b []byte) []byte {
	b = m.append(b, KindEager, 0, m.HeadLength()+int(m.Value.Size)) //nolint:gosec // at most the eager limit
	return m.Value.append(binary.LittleEndian.AppendUint64(b, m.ID))
}

// Length is its length in bytes.
func (m *Eager) Length() int { return m.HeadLength() + len(m.Content) }

// Append writes it to b.
func (m *Eager) Append(b []byte) []byte { return append(m.AppendHead(b), m.Content...) }

// Parse reads it. It refers to b.
func (m *Eager) Parse(b []byte) error {
	_, r := m.parse(b, KindEager)
	if b := r.bytes(idSize + valueFixed); b != nil {
		m.ID = binary.LittleEndian.Uint64(b)
		m.Value.parseFrom(b[idSize:], &r)
	}
	if r.err == nil && m.Value.Size != uint64(len(r.rest)) {
		r.fail("says that its content has %d bytes, and %d follow", m.Value.Size, len(r.rest))
	}
	m.Content = slices.Clip(r.rest)
	return r.err
}
