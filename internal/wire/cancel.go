package wire

// Cancel is sent by the requester: the receives are no longer wanted. CANCELLED, ERROR, EAGER
// or the last writes of a receive confirm that nothing more of it comes.
type Cancel struct{ list }

// Length returns the length of the message in bytes.
func (m *Cancel) Length() int { return m.length() }

// Append encodes the message and appends it to b.
func (m *Cancel) Append(b []byte) []byte { return m.append(b, KindCancel, 0) }

// Parse decodes b, to which m then refers.
func (m *Cancel) Parse(b []byte) error {
	_, err := m.parse(b, KindCancel)
	return err
}
