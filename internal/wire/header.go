package wire

import (
	"encoding/binary"
	"fmt"
)

// Header begins every message.
type Header struct {
	// WantCounts requests the peer's counts within 5 ms, by CREDIT if no other message
	// goes.
	WantCounts bool
	// Taken counts the messages and WRITE_WITH_IMMs that this side has taken from each
	// rail since the channel began, modulo 2³². It grants credits. Empty on rails other
	// than rail 0.
	Taken Counts
	// Acks are receives whose responses the peer may drop from its response cache.
	Acks IDs
}

// Counts has one number per rail.
type Counts struct {
	N  uint8 // rails; at most MaxRails
	Of [MaxRails]uint32
}

func (h *Header) length() int {
	return headerFixed + 4*int(h.Taken.N) + len(h.Acks)
}

// append writes the header of a message. length is that of the whole message.
func (h *Header) append(b []byte, kind Kind, f flags, length int) []byte {
	if h.WantCounts {
		f |= flagWantCounts
	}
	b = append(b, Version, byte(kind), byte(f), h.Taken.N)
	b = binary.LittleEndian.AppendUint32(b, uint32(length))         //nolint:gosec // a message is far below 4 GiB
	b = binary.LittleEndian.AppendUint16(b, uint16(h.Acks.Count())) //nolint:gosec // bounded by the size of a message
	b = append(b, 0, 0)
	for _, n := range h.Taken.Of[:h.Taken.N] {
		b = binary.LittleEndian.AppendUint32(b, n)
	}
	return append(b, h.Acks...)
}

// KindOf returns the kind of the message in b. It checks the length of the fixed header,
// the version and the kind; Parse of that kind checks the rest.
func KindOf(b []byte) (Kind, error) {
	if len(b) < headerFixed {
		return 0, fmt.Errorf("a message of %d bytes is shorter than its header of %d", len(b), headerFixed)
	}
	if b[0] != Version {
		return 0, fmt.Errorf("a message of protocol version %d, want %d", b[0], Version)
	}
	k := Kind(b[1])
	if !k.Valid() {
		return 0, fmt.Errorf("a message of unknown kind %d", b[1])
	}
	return k, nil
}

// parse reads the header of a message of the given kind. r continues with the body.
func (h *Header) parse(b []byte, kind Kind) (f flags, r reader) {
	r = reader{kind: kind}
	if len(b) < headerFixed || b[0] != Version || Kind(b[1]) != kind {
		k, err := KindOf(b)
		if r.err = err; err == nil {
			r.fail("is a message of kind %v", k)
		}
		return 0, r
	}
	f = flags(b[2])
	counts, length := int(b[3]), binary.LittleEndian.Uint32(b[4:])
	acks, zero := int(binary.LittleEndian.Uint16(b[8:])), binary.LittleEndian.Uint16(b[10:])
	// All checks at once: almost every message passes.
	if uint64(length)^uint64(len(b))|uint64(zero)|uint64(f&^kinds[kind].flags) != 0 || counts > MaxRails {
		r.failHeader(f, length, len(b), zero, counts)
		return f, r
	}
	r.rest = b[headerFixed:]
	h.WantCounts = f&flagWantCounts != 0
	h.Taken = Counts{N: uint8(counts)} //nolint:gosec // one byte
	for i, of := 0, r.bytes(4*counts); len(of) >= 4; i, of = i+1, of[4:] {
		h.Taken.Of[i] = binary.LittleEndian.Uint32(of)
	}
	h.Acks = IDs(r.bytes(acks * idSize))
	return f, r
}

// failHeader reports which field of a header is wrong. size is the number of bytes
// received.
func (r *reader) failHeader(f flags, length uint32, size int, zero uint16, counts int) {
	switch wrong := f &^ kinds[r.kind].flags; {
	case wrong != 0:
		r.fail("has flags %#02x, which its kind does not have", byte(wrong))
	case uint64(length) != uint64(size): //nolint:gosec // never negative
		r.fail("gives its length as %d bytes and has %d", length, size)
	case zero != 0:
		r.fail("has %#04x where zero belongs", zero)
	default:
		r.fail("counts %d rails, the most is %d", counts, MaxRails)
	}
}

// reader reads numbers from the front of a message. After its first error it returns
// zeros. The frequent kinds read adjacent numbers with one call of bytes, for speed.
type reader struct {
	kind Kind
	rest []byte
	err  error
}

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("%v "+format, append([]any{r.kind}, args...)...)
	}
	r.rest = nil
}

// bytes returns the next n bytes, without a copy.
func (r *reader) bytes(n int) []byte {
	if r.err != nil {
		return nil
	}
	if n < 0 || n > len(r.rest) {
		r.fail("is too short: %d more bytes are needed, %d are left", n, len(r.rest))
		return nil
	}
	b := r.rest[:n:n]
	r.rest = r.rest[n:]
	return b
}

func (r *reader) uint8() uint8 {
	if b := r.bytes(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) uint16() uint16 {
	if b := r.bytes(2); b != nil {
		return binary.LittleEndian.Uint16(b)
	}
	return 0
}

func (r *reader) uint32() uint32 {
	if b := r.bytes(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (r *reader) uint64() uint64 {
	if b := r.bytes(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

// zero reads n reserved bytes, which must be 0.
func (r *reader) zero(n int) {
	for _, b := range r.bytes(n) {
		if b != 0 {
			r.fail("has %#02x where zero belongs", b)
			return
		}
	}
}

// end returns the first error. Bytes that are left are one.
func (r *reader) end() error {
	if r.err == nil && len(r.rest) > 0 {
		r.fail("has %d bytes after its end", len(r.rest))
	}
	return r.err
}
