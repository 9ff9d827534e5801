package wire

// Finished (the asker's): the answers have arrived and may be let go. For those that nothing
// carried; others ride in headers.
type Finished struct{ list }

// Length is its length in bytes.
func (m *Finished) Length() int { return m.length() }

// Append writes it to b.
func (m *Finished) Append(b []byte) []byte { return m.append(b, KindFinished, 0) }

// Parse reads it. It refers to b.
func (m *Finished) Parse(b []byte) error {
	_, err := m.parse(b, KindFinished)
	return err
}
