package wire

import (
	"encoding/binary"

	"github.com/tryst-rdma/tryst/status"
)

// Error is sent by the responder: the receive has no value.
type Error struct {
	Header
	ID   uint64
	Code status.Code // not OK
	// Each is as in Cancelled.
	Each bool
	// Fallback is set when the receive has not ended: the requester repeats the request
	// over gRPC. Text has the reason.
	Fallback bool
	Text     []byte   // UTF-8, at most what status.Truncate leaves
	Payloads Payloads // sorted by key
}

const errorFixed = idSize + 8

// Length returns the length of the message in bytes.
func (m *Error) Length() int { return m.length() + errorFixed + len(m.Text) + len(m.Payloads) }

// Append encodes the message and appends it to b.
func (m *Error) Append(b []byte) []byte {
	var f flags
	if m.Each {
		f |= flagEach
	}
	if m.Fallback {
		f |= flagFallback
	}
	b = m.append(b, KindError, f, m.Length())
	b = binary.LittleEndian.AppendUint64(b, m.ID)
	b = binary.LittleEndian.AppendUint32(b, uint32(m.Code))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(m.Text))) //nolint:gosec // at most 3 KiB
	return append(append(b, m.Text...), m.Payloads...)
}

// Parse decodes b, to which m then refers.
func (m *Error) Parse(b []byte) error {
	f, r := m.parse(b, KindError)
	m.Each, m.Fallback = f&flagEach != 0, f&flagFallback != 0
	m.ID = r.uint64()
	m.Code = status.Code(r.uint32())
	n := r.uint32()
	switch {
	case r.err != nil:
	case m.Code == status.OK:
		r.fail("has the code OK")
	case n > maxErrorText:
		r.fail("has a text of %d bytes, the most is %d", n, maxErrorText)
	}
	m.Text = r.bytes(int(n))
	m.Payloads = Payloads(r.bytes(len(r.rest)))
	for rest := m.Payloads; r.err == nil && len(rest) > 0; {
		var ok bool
		if _, _, rest, ok = rest.Next(); !ok {
			r.fail("has payloads that are cut off")
		}
	}
	return r.end()
}

// Payloads are the encoded payloads of an error.
type Payloads []byte

// Append adds a payload: the lengths of key and value, 4 bytes each, then both.
func (p Payloads) Append(key string, value []byte) Payloads {
	p = binary.LittleEndian.AppendUint32(p, uint32(len(key)))   //nolint:gosec // bounded by the size of a message
	p = binary.LittleEndian.AppendUint32(p, uint32(len(value))) //nolint:gosec // likewise
	return append(append(p, key...), value...)
}

// Next returns the first payload and the rest. ok is false when the first is cut off.
func (p Payloads) Next() (key, value []byte, rest Payloads, ok bool) {
	if len(p) < 8 {
		return nil, nil, nil, false
	}
	k, v := uint64(binary.LittleEndian.Uint32(p)), uint64(binary.LittleEndian.Uint32(p[4:]))
	p = p[8:]
	if k+v > uint64(len(p)) {
		return nil, nil, nil, false
	}
	return p[:k], p[k : k+v], p[k+v:], true
}
