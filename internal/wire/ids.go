package wire

import "encoding/binary"

// IDs are encoded ids of receives, 8 bytes each.
type IDs []byte

// Count returns the number of ids.
func (s IDs) Count() int { return len(s) / idSize }

// At returns id number i, from 0.
func (s IDs) At(i int) uint64 { return binary.LittleEndian.Uint64(s[i*idSize:]) }

// Append adds an id.
func (s IDs) Append(id uint64) IDs { return binary.LittleEndian.AppendUint64(s, id) }

// AppendTo decodes all ids and appends them to a slice of the caller.
func (s IDs) AppendTo(ids []uint64) []uint64 {
	for i := range s.Count() {
		ids = append(ids, s.At(i))
	}
	return ids
}

// list is a message whose body is a list of ids.
type list struct {
	Header
	IDs IDs // at least one
}

func (m *list) length() int { return m.Header.length() + 4 + len(m.IDs) }

func (m *list) append(b []byte, kind Kind, f flags) []byte {
	b = m.Header.append(b, kind, f, m.length())
	b = binary.LittleEndian.AppendUint32(b, uint32(m.IDs.Count())) //nolint:gosec // bounded by the size of a message
	return append(b, m.IDs...)
}

func (m *list) parse(b []byte, kind Kind) (flags, error) {
	f, r := m.Header.parse(b, kind)
	n := r.uint32()
	if r.err == nil && n == 0 {
		r.fail("has no ids")
	}
	if uint64(n)*idSize != uint64(len(r.rest)) {
		r.fail("gives its ids as %d and has %d bytes for them", n, len(r.rest))
	}
	m.IDs = IDs(r.bytes(len(r.rest)))
	return f, r.end()
}

// ListCapacity returns how many ids fit into the body of a list message of the given size
// in bytes, with counts for the given number of rails.
func ListCapacity(size, rails int) int { return max(0, (size-headerFixed-4*rails-4)/idSize) }
