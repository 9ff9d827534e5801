package wire

// Credit is a header that goes alone, to say what was taken.
type Credit struct{ Header }

// Length is its length in bytes.
func (m *Credit) Length() int { return m.length() }

// Append writes it to b.
func (m *Credit) Append(b []byte) []byte { return m.append(b, KindCredit, 0, m.Length()) }

// Parse reads it. It refers to b.
func (m *Credit) Parse(b []byte) error {
	_, r := m.parse(b, KindCredit)
	if len(m.Acks) > 0 {
		r.fail("carries finished ids: nobody would say that they were taken")
	}
	return r.end()
}
