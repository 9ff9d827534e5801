package wire

import "encoding/binary"

// Bye is the last message of a side that closes the channel in order.
type Bye struct {
	Header
	Reason []byte // UTF-8, at most MaxText bytes; for the peer's log
}

// Length returns the length of the message in bytes.
func (m *Bye) Length() int { return m.length() + 4 + len(m.Reason) }

// Append encodes the message and appends it to b.
func (m *Bye) Append(b []byte) []byte {
	b = m.append(b, KindBye, 0, m.Length())
	b = binary.LittleEndian.AppendUint16(b, uint16(len(m.Reason))) //nolint:gosec // bounded by MaxText
	return append(append(b, 0, 0), m.Reason...)
}

// Parse decodes b, to which m then refers.
func (m *Bye) Parse(b []byte) error {
	_, r := m.parse(b, KindBye)
	n := int(r.uint16())
	r.zero(2)
	if n > MaxText {
		r.fail("has a reason of %d bytes, the most is %d", n, MaxText)
	}
	m.Reason = r.bytes(n)
	return r.end()
}
