package bundle

import (
	"bytes"
	"encoding/binary"
	"errors"
	"sort"
)

// block is a sorted list of keys with values. Each key has its beginning in common with the one before it:
//
//	varint shared | varint rest | varint value | rest of the key | value     an entry
//	…
//	uint32 …      offsets of the entries with shared = 0, the restart points
//	uint32        how many
type block struct {
	entries  []byte
	restarts []byte // 4 bytes for each
}

// errBlock is the error of a block whose numbers do not fit.
var errBlock = errors.New("a block whose numbers do not fit")

// parseBlock returns the block that data is. It does not copy.
func parseBlock(data []byte) (block, error) {
	if len(data) < 4 {
		return block{}, errBlock
	}
	rest, count := data[:len(data)-4], binary.LittleEndian.Uint32(data[len(data)-4:])
	if int64(count) > int64(len(rest)/4) || count == 0 {
		return block{}, errBlock
	}
	at := len(rest) - 4*int(count)
	return block{rest[:at], rest[at:]}, nil
}

// cursor is a position in a block: the entry that next returned last.
type cursor struct {
	block      block
	at         int
	key, value []byte // valid until next; value as long as the block
}

// next goes to the next entry. At the end ok is false.
func (c *cursor) next() (ok bool, err error) {
	rest := c.block.entries[c.at:]
	if len(rest) == 0 {
		return false, nil
	}
	var numbers [3]uint64 // shared, rest, value
	for i := range numbers {
		v, n := binary.Uvarint(rest)
		if n <= 0 {
			return false, errBlock
		}
		numbers[i], rest = v, rest[n:]
	}
	shared, more, value := numbers[0], numbers[1], numbers[2]
	if shared > uint64(len(c.key)) || more > uint64(len(rest)) || value > uint64(len(rest))-more {
		return false, errBlock
	}
	if shared+more > maxKey || value > maxValue {
		return false, errTooLong
	}
	c.key = append(c.key[:shared], rest[:more]...)
	c.value = rest[more : more+value]
	c.at = len(c.block.entries) - len(rest) + int(more+value) //nolint:gosec // not more than the length of rest
	return true, nil
}

// errTooLong is the error of a key or value that no checkpoint has.
var errTooLong = errors.New("a key or a value that is too long")

// seek goes to the first entry whose key is not less than key. At the end ok is false.
func (c *cursor) seek(key []byte) (ok bool, err error) {
	// The last restart point whose key is less.
	n := len(c.block.restarts) / 4
	i := sort.Search(n, func(i int) bool {
		if err != nil {
			return true
		}
		if err = c.restart(i); err != nil {
			return true
		}
		if ok, err = c.next(); !ok {
			return true
		}
		return bytes.Compare(c.key, key) >= 0
	})
	if err == nil {
		err = c.restart(max(i-1, 0))
	}
	for err == nil {
		if ok, err = c.next(); !ok || bytes.Compare(c.key, key) >= 0 {
			return ok && err == nil, err
		}
	}
	return false, err
}

// restart goes before the entry of a restart point.
func (c *cursor) restart(i int) error {
	at := binary.LittleEndian.Uint32(c.block.restarts[4*i:])
	if int64(at) > int64(len(c.block.entries)) {
		return errBlock
	}
	c.at, c.key, c.value = int(at), c.key[:0], nil
	return nil
}

// blockBuilder makes a block.
type blockBuilder struct {
	interval int // entries from one restart point to the next
	data     []byte
	restarts []uint32
	count    int // entries since the last restart point
	last     []byte
}

// add appends an entry. Its key is greater than the one before.
func (b *blockBuilder) add(key, value []byte) {
	shared := 0
	if len(b.restarts) == 0 || b.count == b.interval {
		b.restarts, b.count = append(b.restarts, uint32(len(b.data))), 0 //nolint:gosec // a block has at most blockSize and an entry
	} else {
		for shared < min(len(key), len(b.last)) && key[shared] == b.last[shared] {
			shared++
		}
	}
	b.data = binary.AppendUvarint(b.data, uint64(shared)) //nolint:gosec // a length
	b.data = binary.AppendUvarint(b.data, uint64(len(key)-shared))
	b.data = binary.AppendUvarint(b.data, uint64(len(value)))
	b.data = append(append(b.data, key[shared:]...), value...)
	b.last = append(b.last[:0], key...)
	b.count++
}

// size is about how many bytes the block has.
func (b *blockBuilder) size() int { return len(b.data) + 4*len(b.restarts) + 4 }

// finish returns the block, which is valid until the next add. The builder is then empty.
func (b *blockBuilder) finish() []byte {
	if len(b.restarts) == 0 {
		b.restarts = append(b.restarts, 0)
	}
	for _, at := range b.restarts {
		b.data = binary.LittleEndian.AppendUint32(b.data, at)
	}
	data := binary.LittleEndian.AppendUint32(b.data, uint32(len(b.restarts))) //nolint:gosec // as in add
	b.data, b.restarts, b.count, b.last = data[:0], b.restarts[:0], 0, b.last[:0]
	return data
}
