package bundle

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"math"
	"strings"

	"github.com/tryst-rdma/tryst/tensor"
)

// strings reads the tensor of strings of an entry.
func (r *Reader) strings(ctx context.Context, key string, e *Entry) (*tensor.Tensor, error) {
	f, err := r.place(key, e)
	if err != nil {
		return nil, err
	}
	n := e.Shape.Elements()
	if n > 0 && n > e.size-4 { // each has a byte of length at least
		return nil, damaged("%s: Invalid size in bundle entry: key %s; stored size %d; expected size is at least %d", r.table.name, quote(key), e.size, n+4)
	}
	held, err := tensor.Reserve(r.memory, tensor.ElementOverhead*n+e.size)
	if err != nil {
		return nil, err
	}
	elems, crc, err := r.readStrings(ctx, f, e, n)
	switch {
	case errors.Is(err, errStrings):
		err = damaged("%s: key %s: %w", f.name, quote(key), err)
	case err == nil:
		err = r.checksum(key, e, crc)
	default:
		err = file{name: f.name}.failed(err)
	}
	var t *tensor.Tensor
	if err == nil {
		t, err = tensor.FromReserved(tensor.String, e.Shape, elems, held)
	}
	if err != nil {
		held.Release()
		return nil, err
	}
	return t, nil
}

// errStrings is the error of lengths that do not fit.
var errStrings = errors.New("the lengths of strings do not fit the entry or their checksum")

// readStrings reads n strings, and returns the checksum. They take less memory than the entry has bytes, and
// ElementOverhead for each.
func (r *Reader) readStrings(ctx context.Context, f *dataFile, e *Entry, n int64) ([]string, uint32, error) {
	if e.size == 0 {
		return []string{}, 0, nil
	}
	work := budget{from: r.memory}
	defer work.release()
	if err := work.take(bufferSize + 8*n); err != nil {
		return nil, 0, err
	}
	in := bufio.NewReaderSize(contextReader{ctx, io.NewSectionReader(f, e.offset, e.size)}, bufferSize)
	lengths, crc, err := readLengths(in, n, e.size)
	if err != nil {
		return nil, 0, err
	}
	elems := make([]string, n)
	for i, length := range lengths {
		if elems[i], err = readString(in, length, &crc); err != nil {
			return nil, 0, err
		}
	}
	return elems, crc, nil
}

// readLengths reads the lengths of n strings and their checksum. All have the bytes that size says.
func readLengths(in *bufio.Reader, n, size int64) (lengths []int64, crc uint32, err error) {
	lengths, sum := make([]int64, n), int64(4)
	for i := range lengths {
		p, err := in.Peek(binary.MaxVarintLen64)
		v, used := binary.Uvarint(p)
		switch {
		case used <= 0 && err != nil && !errors.Is(err, io.EOF):
			return nil, 0, err
		case used <= 0, v > uint64(size-sum): //nolint:gosec // sum is at most size
			return nil, 0, errStrings
		}
		_, _ = in.Discard(used) // they are in the buffer
		lengths[i] = int64(v)   //nolint:gosec // at most size
		if sum += lengths[i] + int64(used); sum > size {
			return nil, 0, errStrings
		}
		crc = addLength(crc, v)
	}
	var stored [4]byte
	if _, err := io.ReadFull(in, stored[:]); err != nil {
		return nil, 0, err
	}
	if sum != size || unmask(binary.LittleEndian.Uint32(stored[:])) != crc {
		return nil, 0, errStrings
	}
	return lengths, crc32.Update(crc, castagnoli, stored[:]), nil
}

// readString reads a string and adds it to a checksum.
func readString(in *bufio.Reader, length int64, crc *uint32) (string, error) {
	var b strings.Builder
	if length > bufferSize {
		b.Grow(int(length))
	}
	for {
		part, err := in.Peek(int(min(length-int64(b.Len()), bufferSize)))
		if err != nil {
			return "", err
		}
		*crc = crc32.Update(*crc, castagnoli, part)
		if b.Len() == 0 && int64(len(part)) == length {
			_, _ = in.Discard(len(part)) // they are in the buffer
			return string(part), nil
		}
		b.Write(part)
		_, _ = in.Discard(len(part)) // they are in the buffer
		if int64(b.Len()) == length {
			return b.String(), nil
		}
	}
}

// addLength adds the length of a string to a checksum, as a number of 4 bytes, or 8.
func addLength(crc uint32, v uint64) uint32 {
	if v <= math.MaxUint32 {
		return crc32.Update(crc, castagnoli, binary.LittleEndian.AppendUint32(nil, uint32(v)))
	}
	return crc32.Update(crc, castagnoli, binary.LittleEndian.AppendUint64(nil, v))
}

// contextReader ends with the error of its context.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (c contextReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}

// contextWriter ends with the error of its context. It divides large writes.
type contextWriter struct {
	ctx context.Context
	w   io.Writer
}

func (c contextWriter) Write(p []byte) (done int, err error) {
	for {
		if err := c.ctx.Err(); err != nil {
			return done, err
		}
		n, err := c.w.Write(p[done:min(done+chunk, len(p))])
		if done += n; err != nil || done == len(p) {
			return done, err
		}
	}
}
