package wire

import "encoding/binary"

// Hello is the first message of each side. It proves that both sides mean the same
// channel: the same pair of offers (PROTOCOL.md section 9).
type Hello struct {
	Header
	Generation uint64 // of the channel
	From, To   uint64 // own incarnation, and that of the peer
}

// Length returns the length of the message in bytes.
func (m *Hello) Length() int { return m.length() + 24 }

// Append encodes the message and appends it to b.
func (m *Hello) Append(b []byte) []byte {
	b = m.append(b, KindHello, 0, m.Length())
	b = binary.LittleEndian.AppendUint64(b, m.Generation)
	b = binary.LittleEndian.AppendUint64(b, m.From)
	return binary.LittleEndian.AppendUint64(b, m.To)
}

// Parse decodes b, to which m then refers.
func (m *Hello) Parse(b []byte) error {
	_, r := m.parse(b, KindHello)
	m.Generation, m.From, m.To = r.uint64(), r.uint64(), r.uint64()
	return r.end()
}
