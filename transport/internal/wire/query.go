package wire

// Query (the asker's): are these receives known? WAITING and UNKNOWN answer it.
type Query struct{ list }

// Length is its length in bytes.
func (m *Query) Length() int { return m.length() }

// Append writes it to b.
func (m *Query) Append(b []byte) []byte { return m.append(b, KindQuery, 0) }

// Parse reads it. It refers to b.
func (m *Query) Parse(b []byte) error {
	_, err := m.parse(b, KindQuery)
	return err
}
