package bundle

import (
	"encoding/binary"
	"hash/crc32"
	"io"
)

// tableWriter writes a table. Its bytes are those that TensorFlow writes.
type tableWriter struct {
	w      io.Writer
	offset uint64
	data   blockBuilder
	index  blockBuilder
	last   []byte // key
	// pending says that the index lacks the block that ended with last, at the place done. The next key decides
	// which key the index has for it.
	pending bool
	done    handle
}

func newTableWriter(w io.Writer) *tableWriter {
	return &tableWriter{w: w, data: blockBuilder{interval: restartInterval}, index: blockBuilder{interval: 1}}
}

// add appends an entry. Keys come in order.
func (t *tableWriter) add(key string, value []byte) error {
	if t.pending {
		t.addToIndex(separator(t.last, []byte(key)))
	}
	t.last = append(t.last[:0], key...)
	t.data.add(t.last, value)
	if t.data.size() < blockSize {
		return nil
	}
	return t.flush()
}

// flush ends the block of entries.
func (t *tableWriter) flush() (err error) {
	if len(t.data.data) == 0 {
		return nil
	}
	t.pending = true
	t.done, err = t.block(t.data.finish())
	return err
}

func (t *tableWriter) addToIndex(key []byte) {
	value := binary.AppendUvarint(nil, t.done.offset)
	t.index.add(key, binary.AppendUvarint(value, t.done.size))
	t.pending = false
}

// block writes a block with its trailer.
func (t *tableWriter) block(content []byte) (handle, error) {
	h := handle{t.offset, uint64(len(content))}
	content = append(content, 0) // not compressed
	content = binary.LittleEndian.AppendUint32(content, mask(crc32.Checksum(content, castagnoli)))
	_, err := t.w.Write(content)
	t.offset += uint64(len(content))
	return h, err
}

// finish writes what is left. The writer cannot be used any more.
func (t *tableWriter) finish() error {
	if err := t.flush(); err != nil {
		return err
	}
	about, err := t.block((&blockBuilder{}).finish())
	if err != nil {
		return err
	}
	if t.pending {
		t.addToIndex(successor(t.last))
	}
	index, err := t.block(t.index.finish())
	if err != nil {
		return err
	}
	var footer []byte
	for _, v := range []uint64{about.offset, about.size, index.offset, index.size} {
		footer = binary.AppendUvarint(footer, v)
	}
	footer = append(footer, make([]byte, footerSize-8-len(footer))...)
	_, err = t.w.Write(binary.LittleEndian.AppendUint64(footer, magic))
	return err
}

// separator returns a short key that is not less than a, and less than b, as LevelDB does.
func separator(a, b []byte) []byte {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	if n < min(len(a), len(b)) && a[n] < 0xff && a[n]+1 < b[n] {
		return append(append([]byte(nil), a[:n]...), a[n]+1)
	}
	return a
}

// successor returns a short key that is not less than a, as LevelDB does.
func successor(a []byte) []byte {
	for i, c := range a {
		if c != 0xff {
			return append(append([]byte(nil), a[:i]...), c+1)
		}
	}
	return a
}
