package wire

// Credit is a header alone. It reports counts when no other message does.
type Credit struct{ Header }

// Length returns the length of the message in bytes.
func (m *Credit) Length() int { return m.length() }

// Append encodes the message and appends it to b.
func (m *Credit) Append(b []byte) []byte { return m.append(b, KindCredit, 0, m.Length()) }

// Parse decodes b, to which m then refers.
func (m *Credit) Parse(b []byte) error {
	_, r := m.parse(b, KindCredit)
	if len(m.Acks) > 0 {
		r.fail("carries acknowledged ids, which only other kinds may carry")
	}
	return r.end()
}
