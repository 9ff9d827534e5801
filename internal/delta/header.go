package delta

import (
	"bytes"
	"encoding/binary"
	"errors"

	"github.com/tryst-rdma/tryst/status"
)

// header is what a delta begins with (PROTOCOL.md section 13.1).
type header struct {
	unit         int
	length       int64 // of the tensor, in bytes
	base, result []byte
}

// errShort says that more bytes must come before something can be parsed.
var errShort = errors.New("more bytes must come")

// append appends the header to out.
func (h *header) append(out []byte) []byte {
	out = append(out, version, byte(h.unit))
	out = binary.AppendUvarint(out, uint64(h.length))
	out = append(append(out, byte(len(h.base))), h.base...)
	return append(append(out, byte(len(h.result))), h.result...)
}

// parseHeader reads a header from the beginning of b, and returns its length. The digests refer to b.
func parseHeader(b []byte) (header, int, error) {
	if len(b) > 0 && b[0] != version {
		return header{}, 0, damaged("its version is %d, and this process knows %d", b[0], version)
	}
	if len(b) < 2 {
		return header{}, 0, errShort
	}
	h := header{unit: int(b[1])}
	if !validUnit(h.unit) {
		return header{}, 0, damaged("its elements have %d bytes, not 1, 2, 4 or 8", h.unit)
	}
	length, at, err := parseUvarint(b, 2)
	if err != nil {
		return header{}, 0, err
	}
	h.length = int64(length)
	if h.length < 0 || h.length%int64(h.unit) != 0 {
		return header{}, 0, damaged("its tensor has %d bytes and elements of %d", length, h.unit)
	}
	if h.base, at, err = parseDigest(b, at); err != nil {
		return header{}, 0, err
	}
	if h.result, at, err = parseDigest(b, at); err != nil {
		return header{}, 0, err
	}
	return h, at, nil
}

// parseUvarint reads a number at an offset of b, and returns the offset behind it.
func parseUvarint(b []byte, at int) (uint64, int, error) {
	v, n := binary.Uvarint(b[at:])
	switch {
	case n > 0:
		return v, at + n, nil
	case n == 0:
		return 0, 0, errShort
	}
	return 0, 0, damaged("a number has more than 64 bits")
}

// parseDigest reads a digest at an offset of b, and returns the offset behind it.
func parseDigest(b []byte, at int) ([]byte, int, error) {
	if at >= len(b) {
		return nil, 0, errShort
	}
	n := int(b[at])
	if n > maxDigest {
		return nil, 0, damaged("a digest has %d bytes, more than %d", n, maxDigest)
	}
	if at++; at+n > len(b) {
		return nil, 0, errShort
	}
	return b[at : at+n], at + n, nil
}

// check compares the header with what the receiver knows of the tensor.
func (h *header) check(t *Target) error {
	switch {
	case h.length != int64(len(t.Dst)):
		return damaged("it is of a tensor of %d bytes; this one has %d", h.length, len(t.Dst))
	case !bytes.Equal(h.base, t.BaseDigest):
		return status.Errorf(status.FailedPrecondition, "delta: its base has the digest %x; the tensor here has %x", h.base, t.BaseDigest)
	case !bytes.Equal(h.result, t.Digest):
		return status.Errorf(status.FailedPrecondition, "delta: it makes the digest %x; the wanted version has %x", h.result, t.Digest)
	}
	return nil
}

func validUnit(unit int) bool { return unit == 1 || unit == 2 || unit == 4 || unit == 8 }

// Unit returns the unit of a tensor whose elements have size bytes: the largest of 1, 2, 4 and 8 that
// divides it. Types with several elements a byte, or of an unknown size, have the unit 1.
func Unit(size int) int {
	if size <= 0 {
		return 1
	}
	return min(size&-size, 8)
}

// damaged returns the error for a delta that cannot be applied because of its bytes.
func damaged(format string, args ...any) error {
	return status.Errorf(status.DataLoss, "delta: "+format, args...)
}
