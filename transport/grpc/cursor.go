package grpctransport

import (
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

// cursor reads protobuf's wire format from a message that is split over several buffers. It
// is a value: a copy has a position of its own. It never reads beyond left bytes. After a
// method has returned false the position is undefined.
type cursor struct {
	left int    // bytes until the end of the message
	cur  []byte // rest of the current buffer
	rest mem.BufferSlice
}

func newCursor(data mem.BufferSlice) cursor { return cursor{left: data.Len(), rest: data} }

// fill moves to the next buffer with data if cur is empty. left must not be 0.
func (c *cursor) fill() {
	for len(c.cur) == 0 {
		c.cur, c.rest = c.rest[0].ReadOnlyData(), c.rest[1:]
	}
}

// advance skips n bytes; n must not exceed left.
func (c *cursor) advance(n int) {
	c.left -= n
	for n > len(c.cur) {
		n -= len(c.cur)
		c.cur, c.rest = c.rest[0].ReadOnlyData(), c.rest[1:]
	}
	c.cur = c.cur[n:]
}

// copyTo copies len(dst) bytes; they must not exceed left.
func (c *cursor) copyTo(dst []byte) {
	c.left -= len(dst)
	for len(dst) > 0 {
		c.fill()
		n := copy(dst, c.cur)
		c.cur, dst = c.cur[n:], dst[n:]
	}
}

// peek returns the next n bytes, or all bytes left if these are fewer, without moving. The
// result may share memory with the buffers.
func (c *cursor) peek(n int) []byte {
	n = min(n, c.left)
	if n <= len(c.cur) {
		return c.cur[:n]
	}
	b := make([]byte, n)
	ahead := *c
	ahead.copyTo(b)
	return b
}

func (c *cursor) varint() (uint64, bool) {
	if n := min(len(c.cur), c.left); n >= 10 || n > 0 && c.cur[n-1] < 0x80 {
		v, n := protowire.ConsumeVarint(c.cur[:n])
		if n < 0 {
			return 0, false
		}
		c.advance(n)
		return v, true
	}
	var array [10]byte
	n := 0
	for n < len(array) && c.left > 0 {
		c.fill()
		array[n] = c.cur[0]
		c.advance(1)
		if n++; array[n-1] < 0x80 {
			break
		}
	}
	v, n := protowire.ConsumeVarint(array[:n])
	return v, n > 0
}

func (c *cursor) tag() (protowire.Number, protowire.Type, bool) {
	v, ok := c.varint()
	if !ok {
		return 0, 0, false
	}
	num, typ := protowire.DecodeTag(v)
	return num, typ, num.IsValid()
}

// message returns a cursor over the length-delimited field after its tag, and moves behind
// the field.
func (c *cursor) message() (cursor, bool) {
	n, ok := c.varint()
	if !ok || n > uint64(c.left) {
		return cursor{}, false
	}
	inner := *c
	inner.left = int(n)
	c.advance(int(n))
	return inner, true
}

// skip moves behind a field after its tag. It returns false for groups, which no message
// here has.
func (c *cursor) skip(typ protowire.Type) bool {
	switch typ {
	case protowire.VarintType:
		_, ok := c.varint()
		return ok
	case protowire.Fixed32Type:
		return c.skipN(4)
	case protowire.Fixed64Type:
		return c.skipN(8)
	case protowire.BytesType:
		_, ok := c.message()
		return ok
	}
	return false
}

func (c *cursor) skipN(n int) bool {
	if n > c.left {
		return false
	}
	c.advance(n)
	return true
}
