package wire

// Finished (the asker's): the answers have arrived and may be let go. For those that nothing
// carried; others ride in headers.
type Ack struct{ list }

// Length is its length in bytes.
func (m *Ack) Length() int { return m.length() }

// Append writes it to b.
func (m *Ack) Append(b []byte) []byte { return m.append(b, KindAck, 0) }

// Parse reads it. It refers to b.
func (m *Ack) Parse(b []byte) error {
	_, err := m.parse(b, KindAck)
	return err
}
