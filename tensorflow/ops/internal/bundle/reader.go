package bundle

import (
	"context"
	"hash/crc32"
	"os"

	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// Reader reads one bundle. It is not safe for concurrent use.
type Reader struct {
	prefix Prefix
	memory tensor.Allocator
	index  *os.File
	table  *table
	shards int32
	data   map[int32]*dataFile
	parsed budget // entries
}

// dataFile is an open data file.
type dataFile struct {
	*os.File
	name string
	size int64
}

// Open opens a bundle and reads its header. What it keeps in memory is from the allocator, or reserved in it. Close
// frees it.
func Open(prefix Prefix, memory tensor.Allocator) (*Reader, error) {
	f, size, err := prefix.index().open()
	if err != nil {
		return nil, err
	}
	r := &Reader{prefix: prefix, memory: memory, index: f, data: map[int32]*dataFile{}, parsed: budget{from: memory}}
	if r.table, err = openTable(f, size, prefix.index().name, memory); err == nil {
		err = r.header()
	}
	if err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

// Close frees what the reader has.
func (r *Reader) Close() {
	if r.table != nil {
		r.table.close()
	}
	r.index.Close() //nolint:errcheck,gosec // nothing was written
	r.closeData()
	r.parsed.release()
}

func (r *Reader) closeData() {
	for i, f := range r.data {
		f.Close() //nolint:errcheck,gosec // nothing was written
		delete(r.data, i)
	}
}

func (r *Reader) header() error {
	value, ok, err := r.table.find("")
	if err != nil {
		return err
	}
	if !ok {
		return damaged("%s: failed to seek to header entry", r.table.name)
	}
	h := new(tfpb.BundleHeaderProto)
	if err := parseMessage(r.table.name, "", value, h); err != nil {
		return err
	}
	r.shards = h.GetNumShards()
	return headerOf(r.table.name, h)
}

// Lookup returns the entry of a tensor, or of a variable in parts. It is valid until the next call.
func (r *Reader) Lookup(key string) (*Entry, error) {
	r.parsed.used = 0
	return r.entry(key)
}

// entry is Lookup with what earlier entries take still counted.
func (r *Reader) entry(key string) (*Entry, error) {
	value, ok, err := r.table.find(key)
	if err != nil {
		return nil, err
	}
	if !ok || key == "" {
		return nil, status.Errorf(status.NotFound, "Key %s not found in checkpoint", quote(key))
	}
	if err := r.parsed.take(entryBytes + entryGrowth*int64(len(value))); err != nil {
		return nil, err
	}
	p := new(tfpb.BundleEntryProto)
	if err := parseMessage(r.table.name, key, value, p); err != nil {
		return nil, err
	}
	return entryOf(r.table.name, key, p)
}

// Read returns a part of a tensor, whose entry Lookup has returned; a nil part is all of it. The tensor is from the
// allocator.
func (r *Reader) Read(ctx context.Context, key string, e *Entry, want Slice) (*tensor.Tensor, error) {
	shape, err := want.Shape(e.Shape)
	if err != nil {
		return nil, err
	}
	if len(e.Slices) == 0 && shape.Equal(e.Shape) {
		return r.whole(ctx, key, e)
	}
	return r.assemble(ctx, key, e, want, shape)
}

// whole reads the tensor of an entry without parts.
func (r *Reader) whole(ctx context.Context, key string, e *Entry) (*tensor.Tensor, error) {
	if e.DType == tensor.String {
		return r.strings(ctx, key, e)
	}
	f, err := r.place(key, e)
	if err != nil {
		return nil, err
	}
	t, err := tensor.Allocate(r.memory, e.DType, e.Shape)
	if err != nil {
		return nil, err
	}
	if err := r.plain(ctx, key, e, f, t.Bytes()); err != nil {
		t.Release()
		return nil, err
	}
	return t, nil
}

// place opens the data file of an entry and checks that the elements are in it.
func (r *Reader) place(key string, e *Entry) (*dataFile, error) {
	name := r.table.name
	switch {
	case len(e.Slices) > 0:
		return nil, damaged("%s: the part %s has parts itself", name, quote(key))
	case e.DType != tensor.String && !e.DType.Plain():
		return nil, unsupported("%s: key %s is of the type %s, which the kernel set go does not restore", name, quote(key), e.DType)
	case e.shard >= r.shards:
		return nil, damaged("%s: key %s is in data file %d of %d", name, quote(key), e.shard, r.shards)
	}
	if e.DType.Plain() {
		n, err := tensor.ByteSize(e.DType, e.Shape)
		if err != nil {
			return nil, damaged("%s: key %s: %v", name, quote(key), err)
		}
		if int64(n) != e.size {
			return nil, damaged("%s: Invalid size in bundle entry: key %s; stored size %d; expected size %d", name, quote(key), e.size, n)
		}
	}
	f, err := r.open(e.shard)
	if err != nil {
		return nil, err
	}
	if e.offset > f.size || e.size > f.size-e.offset {
		return nil, damaged("%s: key %s has %d bytes at offset %d; the file has %d", f.name, quote(key), e.size, e.offset, f.size)
	}
	return f, nil
}

// open returns an open data file.
func (r *Reader) open(shard int32) (*dataFile, error) {
	if f := r.data[shard]; f != nil {
		return f, nil
	}
	if len(r.data) == maxOpen {
		r.closeData()
	}
	at := r.prefix.data(shard, r.shards)
	f, size, err := at.open()
	if err != nil {
		return nil, err
	}
	r.data[shard] = &dataFile{f, at.name, size}
	return r.data[shard], nil
}

// plain reads the elements of an entry into p, which has their size.
func (r *Reader) plain(ctx context.Context, key string, e *Entry, f *dataFile, p []byte) error {
	crc := uint32(0)
	for done := 0; done < len(p); {
		if err := ctx.Err(); err != nil {
			return status.From(err)
		}
		next := p[done:min(done+chunk, len(p))]
		if err := readAt(f, next, e.offset+int64(done)); err != nil {
			return file{name: f.name}.failed(err)
		}
		crc = crc32.Update(crc, castagnoli, next)
		done += len(next)
	}
	return r.checksum(key, e, crc)
}

// checksum compares a checksum with that of an entry.
func (r *Reader) checksum(key string, e *Entry, crc uint32) error {
	if stored := unmask(e.crc); stored != crc {
		return damaged("TensorBundle at %s shard %d (%d bytes): Checksum does not match: stored %08d vs. calculated on the restored bytes %d: key %s",
			r.prefix.Name, e.shard, e.size, stored, crc, quote(key))
	}
	return nil
}
