//go:build linux

package storm_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// page is the unit of a value's content in bytes: a mark of the value and of the page, then bytes
// that depend on the value. So a page of another value, at another offset or partly written is
// seen.
const page = 4096

// content describes what was sent or received.
type content struct {
	Size int64  `json:"n"`
	Head []byte `json:"h,omitempty"` // the first 8 bytes, or all
	Dead bool   `json:"dead,omitempty"`
	Torn string `json:"torn,omitempty"` // what is wrong within; "" if nothing
}

func (c content) String() string {
	s := fmt.Sprintf("%d bytes %x", c.Size, c.Head)
	if c.Dead {
		s = "dead"
	}
	if c.Torn != "" {
		s += " TORN: " + c.Torn
	}
	return s
}

// same reports whether both may be the same value. Short ones may be by chance.
func (c content) same(o content) bool {
	return c.Size == o.Size && c.Dead == o.Dead && c.Torn == "" && o.Torn == "" && bytes.Equal(c.Head, o.Head)
}

// unique reports whether no other value has this content.
func (c content) unique() bool { return len(c.Head) == 8 }

// mix is a hash of numbers: splitmix64 over each.
func mix(parts ...uint64) uint64 {
	h := uint64(0)
	for _, p := range parts {
		h += p + 0x9e3779b97f4a7c15
		h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
		h = (h ^ h>>27) * 0x94d049bb133111eb
		h ^= h >> 31
	}
	return h
}

// basePage returns a page of a value, without its mark.
func basePage(value uint64) []byte {
	b := make([]byte, page)
	for i := 0; i < page; i += 8 {
		binary.LittleEndian.PutUint64(b[i:], mix(value, uint64(i)))
	}
	return b
}

const odd = 0x9e3779b97f4a7c15 // makes marks of pages differ in all bytes

// fill writes the content of a value.
func fill(b []byte, value uint64) {
	base := basePage(value)
	for at := 0; at < len(b); at += page {
		binary.LittleEndian.PutUint64(base, value+uint64(at)*odd) //nolint:gosec // an offset
		copy(b[at:], base)
	}
}

// look describes content. The value that its first bytes name must be the whole content.
func look(b []byte, dead bool) content {
	c := content{Size: int64(len(b)), Dead: dead, Head: bytes.Clone(b[:min(8, len(b))])}
	if len(b) < 8 {
		return c
	}
	value := binary.LittleEndian.Uint64(b)
	base := basePage(value)
	for at := 0; at < len(b); at += page {
		binary.LittleEndian.PutUint64(base, value+uint64(at)*odd) //nolint:gosec // an offset
		end := min(at+page, len(b))
		if !bytes.Equal(b[at:end], base[:end-at]) {
			c.Torn = fmt.Sprintf("bytes %d to %d are not those of the value in the first 8", at, end)
			return c
		}
	}
	return c
}
