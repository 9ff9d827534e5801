package wire

import (
	"encoding/binary"
	"slices"
)

// Request is sent by the requester. It is one attempt of one receive.
type Request struct {
	Header
	ID                   uint64 // of the receive: random, the same in each attempt
	Requester, Responder uint64 // incarnations
	// Left is the highest generation of the channel that the requester has left; 0 for
	// none.
	Left    uint64
	Step    int64
	Attempt uint32 // from 1
	Key     []byte // rendezvous key, 1 to MaxKey bytes
	// HasDest is set when the requester expects a value of the type, shape and size of
	// Value, because the last one under this key was. Dest is for such a value.
	HasDest bool
	Dest    Dest  // with HasDest
	Value   Value // with HasDest
}

const requestFixed = 48

// Length returns the length of the message in bytes.
func (m *Request) Length() int {
	n := m.length() + requestFixed + len(m.Key)
	if m.HasDest {
		n += m.Dest.length() + m.Value.length()
	}
	return n
}

// Append encodes the message and appends it to b.
func (m *Request) Append(b []byte) []byte {
	without := *m
	without.Key = nil
	return append(without.AppendHead(b, len(m.Key)), m.Key...)
}

// AppendHead writes all but the key to b, with m.Key empty. The caller appends keyLength
// bytes of key.
func (m *Request) AppendHead(b []byte, keyLength int) []byte {
	var f flags
	if m.HasDest {
		f = flagDest
	}
	b = m.append(b, KindRequest, f, m.Length()+keyLength)
	b = binary.LittleEndian.AppendUint64(b, m.ID)
	b = binary.LittleEndian.AppendUint64(b, m.Requester)
	b = binary.LittleEndian.AppendUint64(b, m.Responder)
	b = binary.LittleEndian.AppendUint64(b, m.Left)
	b = binary.LittleEndian.AppendUint64(b, uint64(m.Step)) //nolint:gosec // the same bits
	b = binary.LittleEndian.AppendUint32(b, m.Attempt)
	b = binary.LittleEndian.AppendUint16(b, uint16(keyLength)) //nolint:gosec // at most MaxKey
	b = append(b, 0, 0)
	if m.HasDest {
		b = m.Value.append(m.Dest.append(b))
	}
	return b
}

// Parse decodes b, to which m then refers.
func (m *Request) Parse(b []byte) error {
	f, r := m.parse(b, KindRequest)
	n, zero := 0, uint16(0)
	if b := r.bytes(requestFixed); b != nil {
		m.ID, m.Requester = binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])
		m.Responder, m.Left = binary.LittleEndian.Uint64(b[16:]), binary.LittleEndian.Uint64(b[24:])
		m.Step = int64(binary.LittleEndian.Uint64(b[32:])) //nolint:gosec // the same bits
		m.Attempt, n = binary.LittleEndian.Uint32(b[40:]), int(binary.LittleEndian.Uint16(b[44:]))
		zero = binary.LittleEndian.Uint16(b[46:])
	}
	if m.HasDest = f&flagDest != 0; m.HasDest {
		m.Dest.parse(&r)
		m.Value.parse(&r)
	}
	switch {
	case r.err != nil:
		return r.err
	case m.ID == 0 || m.Attempt == 0:
		r.fail("is attempt %d of receive %016x: neither is ever 0", m.Attempt, m.ID)
	case zero != 0:
		r.fail("has %#04x where zero belongs", zero)
	case n == 0:
		r.fail("has no key")
	case n != len(r.rest):
		r.fail("gives its key as %d bytes, and %d follow", n, len(r.rest))
	case m.HasDest && (m.Value.Dead || m.Value.Size == 0):
		r.fail("has a destination for a value without content")
	}
	m.Key = slices.Clip(r.rest) // nil after an error
	return r.err
}
