package wire

import "encoding/binary"

// Hello is the first message of each side. It proves that the queue pairs are
// those of the pair of offers that both sides mean.
type Hello struct {
	Header
	Generation uint64 // of the channel
	From, To   uint64 // incarnations of the giver and of the taker
}

// Length is its length in bytes.
func (m *Hello) Length() int { return m.length() + 24 }

// Append writes it to b.
func (m *Hello) Append(b []byte) []byte {
	b = m.append(b, KindHello, 0, m.Length())
	b = binary.LittleEndian.AppendUint64(b, m.Generation)
	b = binary.LittleEndian.AppendUint64(b, m.From)
	return binary.LittleEndian.AppendUint64(b, m.To)
}

// Parse reads it. It refers to b.
func (m *Hello) Parse(b []byte) error {
	_, r := m.parse(b, KindHello)
	m.Generation, m.From, m.To = r.uint64(), r.uint64(), r.uint64()
	return r.end()
}
