package wire

import "encoding/binary"

// IDs are ids of receives as they stand in a message, 8 bytes each.
type IDs []byte

// Count is how many they are.
func (s IDs) Count() int { return len(s) / idSize }

// At is one of them, from 0.
func (s IDs) At(i int) uint64 { return binary.LittleEndian.Uint64(s[i*idSize:]) }

// Append adds one.
func (s IDs) Append(id uint64) IDs { return binary.LittleEndian.AppendUint64(s, id) }

// AppendTo adds all of them to a list that is the caller's.
func (s IDs) AppendTo(ids []uint64) []uint64 {
	for i := range s.Count() {
		ids = append(ids, s.At(i))
	}
	return ids
}

// list is the body of the kinds that are nothing but ids.
type list struct {
	Header
	IDs IDs // at least one
}

func (m *list) length() int { return m.Header.length() + 4 + len(m.IDs) }

func (m *list) append(b []byte, kind Kind, f flags) []byte {
	b = m.Header.append(b, kind, f, m.length())
	b = binary.LittleEndian.AppendUint32(b, uint32(m.IDs.Count())) //nolint:gosec // a message has no room for more
	return append(b, m.IDs...)
}

func (m *list) parse(b []byte, kind Kind) (flags, error) {
	f, r := m.Header.parse(b, kind)
	n := r.uint32()
	if r.err == nil && n == 0 {
		r.fail("names no receive")
	}
	if uint64(n)*idSize != uint64(len(r.rest)) {
		r.fail("says that it names %d receives in %d bytes", n, len(r.rest))
	}
	m.IDs = IDs(r.bytes(len(r.rest)))
	return f, r.end()
}

// ListRoom is how many ids fit into a message of one of the list kinds, of the
// given size and with counts for so many rails.
func ListCapacity(size, rails int) int { return max(0, (size-headerFixed-4*rails-4)/idSize) }
