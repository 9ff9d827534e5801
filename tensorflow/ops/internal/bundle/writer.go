package bundle

import (
	"bufio"
	"context"
	"encoding/binary"
	"hash/crc32"
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"

	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/tensorproto"
)

// Writer writes a bundle with one data file. It is not safe for concurrent use.
type Writer struct {
	prefix  Prefix
	data    *temporary
	out     *bufio.Writer
	offset  int64
	entries map[string]*tfpb.BundleEntryProto
	memory  budget
}

// NewWriter begins a bundle. It makes the directory, if that one's parent exists. What the writer keeps in memory
// is reserved in the allocator. Close follows.
func NewWriter(ctx context.Context, prefix Prefix, memory tensor.Allocator) (*Writer, error) {
	w := &Writer{prefix: prefix, entries: map[string]*tfpb.BundleEntryProto{}, memory: budget{from: memory}}
	if err := w.memory.take(bufferSize); err != nil {
		return nil, err
	}
	err := prefix.directory().makeDirectory()
	if err == nil {
		w.data, err = prefix.data(0, 1).create()
	}
	if err != nil {
		w.Close()
		return nil, err
	}
	w.out = bufio.NewWriterSize(contextWriter{ctx, w.data}, bufferSize)
	return w, nil
}

// Close frees what the writer has. Before Finish it removes what was written.
func (w *Writer) Close() {
	w.data.discard()
	w.memory.release()
}

// Add writes a tensor.
func (w *Writer) Add(key string, t *tensor.Tensor) error {
	switch {
	case key == "", len(key) > maxKey:
		return invalid("a name of a tensor has 1 to %d bytes; this one has %d", maxKey, len(key))
	case w.entries[key] != nil:
		return invalid("Adding duplicate key: %s", quote(key))
	case t.DType() != tensor.String && !t.DType().Plain():
		return unsupported("key %s is of the type %s, which the kernel set go does not save", quote(key), t.DType())
	}
	e, err := w.entry(key, t.DType(), t.Shape())
	if err != nil {
		return err
	}
	e.Offset = w.offset
	var crc uint32
	if t.DType() == tensor.String {
		crc, err = w.strings(t.Elements())
	} else {
		crc, err = crc32.Update(0, castagnoli, t.Bytes()), w.write(t.Bytes())
	}
	if err != nil {
		return err
	}
	e.Size, e.Crc32C = w.offset-e.Offset, mask(crc)
	return nil
}

// AddSlice writes a part of a tensor, whose shape is whole. Parts come in any order; those of other tasks have their
// own bundles, which Merge brings together.
func (w *Writer) AddSlice(key string, whole tensor.Shape, s Slice, t *tensor.Tensor) error {
	part, err := s.Shape(whole)
	if err != nil {
		return err
	}
	if !part.Equal(t.Shape()) {
		return invalid("key %s: the part %s of %s has the shape %s, and the tensor %s", quote(key), s, whole, part, t.Shape())
	}
	if part.Equal(whole) {
		return w.Add(key, t)
	}
	e := w.entries[key]
	if e == nil {
		if e, err = w.entry(key, t.DType(), whole); err != nil {
			return err
		}
	} else if err := checkParts(key, e, int32(t.DType()), tensorproto.ShapeToProto(whole)); err != nil {
		return err
	}
	if len(e.Slices) == maxSlices {
		return invalid("key %s has more than %d parts", quote(key), maxSlices)
	}
	if err := w.memory.take(int64(64 + 96*len(s))); err != nil {
		return err
	}
	e.Slices = append(e.Slices, s.proto())
	return w.Add(s.key(key), t)
}

// checkParts checks that parts of a tensor of a type and a shape may be added to an entry.
func checkParts(key string, e *tfpb.BundleEntryProto, dtype int32, shape *tfpb.TensorShapeProto) error {
	switch {
	case len(e.GetSlices()) == 0:
		return invalid("Adding duplicate key: %s", quote(key))
	case int32(e.GetDtype()) != dtype, !proto.Equal(e.GetShape(), shape):
		return invalid("key %s: the parts are of tensors of different types or shapes", quote(key))
	}
	return nil
}

// entry makes the entry of a key.
func (w *Writer) entry(key string, d tensor.DType, shape tensor.Shape) (*tfpb.BundleEntryProto, error) {
	if err := w.memory.take(int64(entryBytes + len(key) + 96*shape.Rank())); err != nil {
		return nil, err
	}
	e := &tfpb.BundleEntryProto{Dtype: tensorproto.DTypeToProto(d), Shape: tensorproto.ShapeToProto(shape)}
	w.entries[key] = e
	return e, nil
}

// write writes elements.
func (w *Writer) write(p []byte) error {
	n, err := w.out.Write(p)
	w.offset += int64(n)
	return w.failed(err)
}

// failed returns an error of the data file.
func (w *Writer) failed(err error) error {
	if err == nil {
		return nil
	}
	return w.data.final.failed(err)
}

// strings writes the elements of a tensor of strings and returns their checksum.
func (w *Writer) strings(elems []string) (crc uint32, err error) {
	var number [binary.MaxVarintLen64]byte
	for _, e := range elems {
		n := binary.PutUvarint(number[:], uint64(len(e)))
		crc = addLength(crc, uint64(len(e)))
		if err := w.write(number[:n]); err != nil {
			return 0, err
		}
	}
	binary.LittleEndian.PutUint32(number[:], mask(crc))
	crc = crc32.Update(crc, castagnoli, number[:4])
	if err := w.write(number[:4]); err != nil {
		return 0, err
	}
	var buf [512]byte // the checksum is of bytes
	for _, e := range elems {
		for len(e) > 0 {
			n := copy(buf[:], e)
			crc = crc32.Update(crc, castagnoli, buf[:n])
			if err := w.write(buf[:n]); err != nil {
				return 0, err
			}
			e = e[n:]
		}
	}
	return crc, nil
}

// Finish gives the files their names. The bundle is then on the disk.
func (w *Writer) Finish(ctx context.Context) error {
	if err := w.failed(w.out.Flush()); err != nil {
		return err
	}
	if err := w.data.commit(); err != nil {
		return err
	}
	return writeIndex(ctx, w.prefix, header(1), w.entries)
}

// writeIndex writes an index and syncs the directory.
func writeIndex(ctx context.Context, prefix Prefix, h *tfpb.BundleHeaderProto, entries map[string]*tfpb.BundleEntryProto) error {
	index := prefix.index()
	f, err := index.create()
	if err != nil {
		return err
	}
	defer f.discard()
	out := bufio.NewWriterSize(contextWriter{ctx, f}, bufferSize)
	t := newTableWriter(out)
	if err = addMessage(t, index.name, "", h); err != nil {
		return err
	}
	for _, key := range slices.Sorted(maps.Keys(entries)) {
		if err = addMessage(t, index.name, key, entries[key]); err != nil {
			return err
		}
	}
	if err = t.finish(); err == nil {
		err = out.Flush()
	}
	if err != nil {
		return index.failed(err)
	}
	if err := f.commit(); err != nil {
		return err
	}
	return prefix.directory().sync()
}

// addMessage adds an entry to an index.
func addMessage(t *tableWriter, name, key string, m proto.Message) error {
	value, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		return status.Errorf(status.Internal, "%s: key %s: %v", name, quote(key), err)
	}
	if len(value) > maxValue {
		return invalid("%s: key %s has an entry of %d bytes; at most %d are possible: save the variable in fewer parts", name, quote(key), len(value), maxValue)
	}
	if err := t.add(key, value); err != nil {
		return file{name: name}.failed(err)
	}
	return nil
}
