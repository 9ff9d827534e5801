package bundle

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// table reads a table:
//
//	block, kind, checksum    entries
//	…
//	block, kind, checksum    about the table: none
//	block, kind, checksum    the index: for each block of entries a key that is not less than its last one
//	footer                   handles of the last two, and the magic number
//
// It has the index in memory, and the block of entries that it read last.
type table struct {
	file   io.ReaderAt
	size   int64
	name   string
	memory tensor.Allocator

	index    block
	indexBuf *tensor.Buffer
	data     block
	dataBuf  *tensor.Buffer // nil before the first block
	dataAt   handle
}

// handle is the place of a block.
type handle struct{ offset, size uint64 }

// parseHandle parses the beginning of b.
func parseHandle(b []byte) (h handle, rest []byte, err error) {
	for _, v := range []*uint64{&h.offset, &h.size} {
		x, n := binary.Uvarint(b)
		if n <= 0 {
			return handle{}, nil, errBlock
		}
		*v, b = x, b[n:]
	}
	return h, b, nil
}

// openTable reads footer and index. f stays the caller's.
func openTable(f io.ReaderAt, size int64, name string, memory tensor.Allocator) (*table, error) {
	t := &table{file: f, size: size, name: name, memory: memory}
	if size < footerSize {
		return nil, damaged("%s: file is too short to be an sstable: %d bytes", name, size)
	}
	var footer [footerSize]byte
	if err := readAt(f, footer[:], size-footerSize); err != nil {
		return nil, file{name: name}.failed(err)
	}
	if m := binary.LittleEndian.Uint64(footer[footerSize-8:]); m != magic {
		return nil, damaged("%s: not an sstable (bad magic number %#x)", name, m)
	}
	_, rest, err := parseHandle(footer[:footerSize-8])
	var index handle
	if err == nil {
		index, _, err = parseHandle(rest)
	}
	if err == nil {
		t.index, t.indexBuf, err = t.read(index)
	}
	if err != nil {
		return nil, t.failed(err)
	}
	return t, nil
}

// close gives the memory back.
func (t *table) close() {
	if t.indexBuf != nil {
		t.indexBuf.Release()
	}
	if t.dataBuf != nil {
		t.dataBuf.Release()
	}
	t.index, t.indexBuf, t.data, t.dataBuf = block{}, nil, block{}, nil
}

// failed adds the file to an error.
func (t *table) failed(err error) error {
	if errors.Is(err, errBlock) || errors.Is(err, errTooLong) {
		return damaged("Unable to read file (%s). Perhaps the file is corrupt or was produced by a newer version of TensorFlow with format changes: %w", t.name, err)
	}
	return err
}

// read reads a block into new memory.
func (t *table) read(h handle) (block, *tensor.Buffer, error) {
	end := uint64(t.size - footerSize) //nolint:gosec // not negative
	switch {
	case h.offset > end, h.size > end-h.offset, end-h.offset-h.size < trailerSize:
		return block{}, nil, damaged("%s: a block of %d bytes at offset %d is outside the file of %d bytes", t.name, h.size, h.offset, t.size)
	case h.size > maxBlock:
		return block{}, nil, damaged("%s: a block of %d bytes at offset %d; at most %d are read", t.name, h.size, h.offset, maxBlock)
	}
	n := int(h.size) //nolint:gosec // at most maxBlock
	buf, err := t.memory.Allocate(n + trailerSize)
	if err != nil {
		return block{}, nil, err
	}
	b, err := t.parse(buf.Bytes(), int64(h.offset)) //nolint:gosec // within the file
	if err != nil {
		buf.Release()
		return block{}, nil, err
	}
	return b, buf, nil
}

// parse reads a block and its trailer into p.
func (t *table) parse(p []byte, offset int64) (block, error) {
	if err := readAt(t.file, p, offset); err != nil {
		return block{}, file{name: t.name}.failed(err)
	}
	content, kind, stored := p[:len(p)-trailerSize], p[len(p)-trailerSize], binary.LittleEndian.Uint32(p[len(p)-4:])
	if got := crc32.Checksum(p[:len(p)-4], castagnoli); got != unmask(stored) {
		return block{}, damaged("%s: block checksum mismatch at offset %d: stored %08x, calculated %08x", t.name, offset, unmask(stored), got)
	}
	if kind != 0 {
		return block{}, unsupported(
			"%s: the block at offset %d is compressed (kind %d), which only TensorFlow 1.1 wrote; load the checkpoint with TensorFlow and save it again", t.name, offset, kind)
	}
	return parseBlock(content)
}

// load makes data the block of a handle.
func (t *table) load(h handle) error {
	if t.dataBuf != nil && t.dataAt == h {
		return nil
	}
	if t.dataBuf != nil {
		t.dataBuf.Release()
		t.data, t.dataBuf = block{}, nil
	}
	var err error
	t.data, t.dataBuf, err = t.read(h)
	t.dataAt = h
	return err
}

// find returns the value of a key, valid until the next call.
func (t *table) find(key string) (value []byte, ok bool, err error) {
	c := cursor{block: t.index}
	if ok, err = c.seek([]byte(key)); !ok || err != nil {
		return nil, false, t.failed(err)
	}
	h, _, err := parseHandle(c.value)
	if err == nil {
		err = t.load(h)
	}
	if err != nil {
		return nil, false, t.failed(err)
	}
	c = cursor{block: t.data}
	if ok, err = c.seek([]byte(key)); !ok || err != nil || string(c.key) != key {
		return nil, false, t.failed(err)
	}
	return c.value, true, nil
}

// each calls f with all entries in order, until it fails. Key and value are valid during the call. Blocks come one
// after the other in the file, so that the work is bounded by its size.
func (t *table) each(ctx context.Context, f func(key, value []byte) error) error {
	blocks, end := cursor{block: t.index}, uint64(0)
	var last []byte
	for first := true; ; {
		ok, err := blocks.next()
		if !ok || err != nil {
			return t.failed(err)
		}
		h, _, err := parseHandle(blocks.value)
		if err != nil {
			return t.failed(err)
		}
		if h.offset < end {
			return damaged("%s: the block at offset %d overlaps the one before it", t.name, h.offset)
		}
		if err := ctx.Err(); err != nil {
			return status.From(err)
		}
		if err := t.load(h); err != nil {
			return t.failed(err)
		}
		end = h.offset + h.size
		c := cursor{block: t.data}
		for {
			ok, err := c.next()
			if err != nil {
				return t.failed(err)
			}
			if !ok {
				break
			}
			if !first && bytes.Compare(c.key, last) <= 0 {
				return damaged("%s: the key %s is not in order", t.name, quote(string(c.key)))
			}
			first, last = false, append(last[:0], c.key...)
			if err := f(c.key, c.value); err != nil {
				return err
			}
		}
	}
}

// readAt reads all of p.
func readAt(r io.ReaderAt, p []byte, off int64) error {
	n, err := r.ReadAt(p, off)
	if n == len(p) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
