package wire

// Cancelled is sent by the responder: nothing more is written for these receives. The
// requester may use their destinations again.
type Cancelled struct {
	list
	// Each is set when writes were posted before. Then one such message comes over
	// each rail that carries the content and has not had its last write.
	Each bool
}

// Length returns the length of the message in bytes.
func (m *Cancelled) Length() int { return m.length() }

// Append encodes the message and appends it to b.
func (m *Cancelled) Append(b []byte) []byte {
	var f flags
	if m.Each {
		f = flagEach
	}
	return m.append(b, KindCancelled, f)
}

// Parse decodes b, to which m then refers.
func (m *Cancelled) Parse(b []byte) error {
	f, err := m.parse(b, KindCancelled)
	m.Each = f&flagEach != 0
	return err
}
