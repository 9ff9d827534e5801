package wire

// Unknown (the sender's): nothing is known of these receives on this channel.
type Unknown struct{ list }

// Length is its length in bytes.
func (m *Unknown) Length() int { return m.length() }

// Append writes it to b.
func (m *Unknown) Append(b []byte) []byte { return m.append(b, KindUnknown, 0) }

// Parse reads it. It refers to b.
func (m *Unknown) Parse(b []byte) error {
	_, err := m.parse(b, KindUnknown)
	return err
}
