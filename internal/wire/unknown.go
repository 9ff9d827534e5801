package wire

// Unknown is sent by the responder. It answers QUERY: it does not know these receives on this
// channel.
type Unknown struct{ list }

// Length returns the length of the message in bytes.
func (m *Unknown) Length() int { return m.length() }

// Append encodes the message and appends it to b.
func (m *Unknown) Append(b []byte) []byte { return m.append(b, KindUnknown, 0) }

// Parse decodes b, to which m then refers.
func (m *Unknown) Parse(b []byte) error {
	_, err := m.parse(b, KindUnknown)
	return err
}
