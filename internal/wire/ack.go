package wire

// Ack is sent by the requester. It acknowledges responses: the responder may drop them from its
// response cache. It is for ids that no other message has carried in its header.
type Ack struct{ list }

// Length returns the length of the message in bytes.
func (m *Ack) Length() int { return m.length() }

// Append encodes the message and appends it to b.
func (m *Ack) Append(b []byte) []byte { return m.append(b, KindAck, 0) }

// Parse decodes b, to which m then refers.
func (m *Ack) Parse(b []byte) error {
	_, err := m.parse(b, KindAck)
	return err
}
