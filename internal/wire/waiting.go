package wire

// Waiting is sent by the responder. It answers QUERY: it knows these receives and sends their
// responses when it has them.
type Waiting struct{ list }

// Length returns the length of the message in bytes.
func (m *Waiting) Length() int { return m.length() }

// Append encodes the message and appends it to b.
func (m *Waiting) Append(b []byte) []byte { return m.append(b, KindWaiting, 0) }

// Parse decodes b, to which m then refers.
func (m *Waiting) Parse(b []byte) error {
	_, err := m.parse(b, KindWaiting)
	return err
}
