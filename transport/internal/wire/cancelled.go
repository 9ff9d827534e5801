package wire

// Cancelled (the sender's): nothing is written for these receives any more, so
// their destinations are the asker's again.
type Cancelled struct {
	list
	// Each says that writes had been posted: one such message comes over
	// each rail that carries the content and has not had its last write.
	Each bool
}

// Length is its length in bytes.
func (m *Cancelled) Length() int { return m.length() }

// Append writes it to b.
func (m *Cancelled) Append(b []byte) []byte {
	var f flags
	if m.Each {
		f = flagEach
	}
	return m.append(b, KindCancelled, f)
}

// Parse reads it. It refers to b.
func (m *Cancelled) Parse(b []byte) error {
	f, err := m.parse(b, KindCancelled)
	m.Each = f&flagEach != 0
	return err
}
