package wire

// Cancel (the asker's): the receives are not wanted any more. Each is told by its
// CANCELLED, ERROR, EAGER or last writes that nothing more of it comes.
type Cancel struct{ list }

// Length is its length in bytes.
func (m *Cancel) Length() int { return m.length() }

// Append writes it to b.
func (m *Cancel) Append(b []byte) []byte { return m.append(b, KindCancel, 0) }

// Parse reads it. It refers to b.
func (m *Cancel) Parse(b []byte) error {
	_, err := m.parse(b, KindCancel)
	return err
}
