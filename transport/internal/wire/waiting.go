package wire

// Waiting (the sender's): these receives are known, and their answers come when there
// are any.
type Waiting struct{ list }

// Length is its length in bytes.
func (m *Waiting) Length() int { return m.length() }

// Append writes it to b.
func (m *Waiting) Append(b []byte) []byte { return m.append(b, KindWaiting, 0) }

// Parse reads it. It refers to b.
func (m *Waiting) Parse(b []byte) error {
	_, err := m.parse(b, KindWaiting)
	return err
}
