package wire

// Query is sent by the requester: does the responder know these receives? WAITING and UNKNOWN
// answer it.
type Query struct{ list }

// Length returns the length of the message in bytes.
func (m *Query) Length() int { return m.length() }

// Append encodes the message and appends it to b.
func (m *Query) Append(b []byte) []byte { return m.append(b, KindQuery, 0) }

// Parse decodes b, to which m then refers.
func (m *Query) Parse(b []byte) error {
	_, err := m.parse(b, KindQuery)
	return err
}
