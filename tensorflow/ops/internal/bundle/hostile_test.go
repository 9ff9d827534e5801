package bundle

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// forge writes an index with any entries, and a data file.
func forge(t testing.TB, dir string, h *tfpb.BundleHeaderProto, data []byte, entries ...any) Prefix {
	t.Helper()
	var b bytes.Buffer
	w := newTableWriter(&b)
	for _, kv := range append([]any{"", h}, entries...) {
		switch kv := kv.(type) {
		case string:
			w.last = []byte(kv) // the key of the message that follows
		case proto.Message:
			key := string(w.last)
			value, err := proto.Marshal(kv)
			if err != nil {
				t.Fatal(err)
			}
			if err := w.add(key, value); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.finish(); err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(dir, "f.index"), b.Bytes())
	put(t, filepath.Join(dir, "f.data-00000-of-00001"), data)
	return in(t, dir, "f")
}

func put(t testing.TB, name string, data []byte) {
	t.Helper()
	if err := os.WriteFile(name, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// dims is a shape, which need not be right.
func dims(d ...int64) *tfpb.TensorShapeProto {
	p := &tfpb.TensorShapeProto{}
	for _, n := range d {
		p.Dim = append(p.Dim, &tfpb.TensorShapeProto_Dim{Size: n})
	}
	return p
}

func extent(start, length int64) *tfpb.TensorSliceProto {
	return (Slice{{start, length}}).proto()
}

const (
	float = tfpb.DataType_DT_FLOAT
	text  = tfpb.DataType_DT_STRING
)

// entryProto is the message of an entry; a short name.
type entryProto = tfpb.BundleEntryProto

// TestWrongEntries: what an index says of a tensor is checked before it is used. Errors name the file and the key, and no
// memory is taken for what no file has.
func TestWrongEntries(t *testing.T) {
	good := header(1)
	zeros := make([]byte, 16)
	sum := mask(0x8a9136aa) // of 32 zeros; wrong for all others
	for name, c := range map[string]struct {
		header  *tfpb.BundleHeaderProto
		data    []byte
		entries []any
		want    string
	}{
		"another key":                {good, zeros, nil, "NotFound: Key x not found in checkpoint"},
		"a negative extent":          {good, zeros, []any{"x", &entryProto{Dtype: float, Shape: dims(-1)}}, "DataLoss: DIR/f.index: Invalid tensor shape: key x"},
		"too many elements":          {good, zeros, []any{"x", &entryProto{Dtype: float, Shape: dims(1<<40, 1<<40)}}, "DataLoss: DIR/f.index: Invalid tensor shape: key x"},
		"a negative offset":          {good, zeros, []any{"x", &entryProto{Dtype: float, Shape: dims(2), Offset: -8, Size: 8}}, "DataLoss: DIR/f.index: key x is at offset -8"},
		"a wrong size":               {good, zeros, []any{"x", &entryProto{Dtype: float, Shape: dims(2), Size: 4}}, "DataLoss: DIR/f.index: Invalid size in bundle entry: key x; stored size 4; expected size 8"},
		"more than the file has":     {good, zeros, []any{"x", &entryProto{Dtype: float, Shape: dims(1 << 40), Size: 1 << 42}}, "DataLoss: DIR/f.data-00000-of-00001: key x has 4398046511104 bytes at offset 0; the file has 16"},
		"an offset beyond the file":  {good, zeros, []any{"x", &entryProto{Dtype: float, Shape: dims(2), Offset: 1<<63 - 1, Size: 8}}, "DataLoss: DIR/f.data-00000-of-00001: key x has 8 bytes at offset 9223372036854775807"},
		"another data file":          {good, zeros, []any{"x", &entryProto{Dtype: float, Shape: dims(2), Size: 8, ShardId: 1}}, "DataLoss: DIR/f.index: key x is in data file 1 of 1"},
		"a data file that is gone":   {header(2), zeros, []any{"x", &entryProto{Dtype: float, Shape: dims(2), Size: 8, ShardId: 1}}, "NotFound: DIR/f.data-00001-of-00002; No such file or directory"},
		"a checksum":                 {good, zeros, []any{"x", &entryProto{Dtype: float, Shape: dims(2), Size: 8, Crc32C: sum}}, "DataLoss: TensorBundle at DIR/f shard 0 (8 bytes): Checksum does not match"},
		"a type of no memory":        {good, zeros, []any{"x", &entryProto{Dtype: tfpb.DataType_DT_VARIANT, Shape: dims()}}, "Unimplemented: DIR/f.index: key x is of the type variant"},
		"a type that does not exist": {good, zeros, []any{"x", &entryProto{Dtype: 77, Shape: dims()}}, "Unimplemented: DIR/f.index: key x is of the type dtype(77)"},
		"more strings than bytes":    {good, zeros, []any{"x", &entryProto{Dtype: text, Shape: dims(1 << 40), Size: 16}}, "DataLoss: DIR/f.index: Invalid size in bundle entry: key x; stored size 16; expected size is at least"},
		"strings, zeros":             {good, zeros, []any{"x", &entryProto{Dtype: text, Shape: dims(2), Size: 16}}, "DataLoss: DIR/f.data-00000-of-00001: key x: the lengths of strings do not fit"},
		"strings, long":              {good, bytes.Repeat([]byte{0xff}, 16), []any{"x", &entryProto{Dtype: text, Shape: dims(2), Size: 16}}, "x: the lengths of strings do not fit"},
		"strings, huge":              {good, binary.AppendUvarint(nil, 1<<63-1), []any{"x", &entryProto{Dtype: text, Shape: dims(1), Size: 9}}, "x: the lengths of strings do not fit"},
		"big-endian":                 {&tfpb.BundleHeaderProto{NumShards: 1, Endianness: tfpb.BundleHeaderProto_BIG}, zeros, nil, "Unimplemented: DIR/f.index: its data has the byte order BIG"},
		"a newer version":            {&tfpb.BundleHeaderProto{NumShards: 1, Version: &tfpb.VersionDef{Producer: 9, MinConsumer: 2}}, zeros, nil, "InvalidArgument: DIR/f.index: Checkpoint min consumer version 2"},
		"a version that is refused":  {&tfpb.BundleHeaderProto{NumShards: 1, Version: &tfpb.VersionDef{BadConsumers: []int32{1}}}, zeros, nil, "InvalidArgument: DIR/f.index: Checkpoint min consumer"},
		"a negative number of files": {&tfpb.BundleHeaderProto{NumShards: -1}, zeros, nil, "DataLoss: DIR/f.index: it names -1 data files"},
		"a part outside":             {good, zeros, []any{"x", &entryProto{Dtype: float, Shape: dims(4), Slices: []*tfpb.TensorSliceProto{extent(3, 2)}}}, "DataLoss: DIR/f.index: key x: a part does not fit: Internal: Extent in dimension 0 out of bounds"},
		"a part beyond all":          {good, zeros, []any{"x", &entryProto{Dtype: float, Shape: dims(4), Slices: []*tfpb.TensorSliceProto{extent(1<<63-1, 1<<63-1)}}}, "DataLoss: DIR/f.index: key x: a part does not fit"},
		"a part of another rank":     {good, zeros, []any{"x", &entryProto{Dtype: float, Shape: dims(4, 4), Slices: []*tfpb.TensorSliceProto{extent(0, 2)}}}, "key x: a part does not fit: Internal: Mismatching ranks"},
		"a gap": {good, zeros, []any{"x", &entryProto{Dtype: float, Shape: dims(4), Slices: []*tfpb.TensorSliceProto{extent(0, 1), extent(2, 2)}}},
			"InvalidArgument: Does not have sufficient slices for partitioned tensor x to restore in slice_spec: -"},
		"an overlap": {good, zeros, []any{"x", &entryProto{Dtype: float, Shape: dims(4), Slices: []*tfpb.TensorSliceProto{extent(0, 3), extent(2, 1)}}},
			"DataLoss: DIR/f.index: key x: Overlapping slices: existing slice = 0,3, new slice = 2,1"},
		"parts without entries": {good, zeros, []any{"x", &entryProto{Dtype: float, Shape: dims(1 << 40), Slices: []*tfpb.TensorSliceProto{extent(0, 1<<39), extent(1<<39, 1<<39)}}},
			"NotFound: Key \"\\x00x"},
		"a part of another type": {good, zeros, []any{extentKey("x", 0, 2), &entryProto{Dtype: text, Shape: dims(2)}, extentKey("x", 2, 2), &entryProto{Dtype: float, Shape: dims(2)},
			"x", &entryProto{Dtype: float, Shape: dims(4), Slices: []*tfpb.TensorSliceProto{extent(0, 2), extent(2, 2)}}},
			"DataLoss: DIR/f.index: key x is float[4], and its part 0,2 is string[2]"},
		"a part with parts": {good, zeros, []any{extentKey("x", 0, 2), &entryProto{Dtype: float, Shape: dims(2), Slices: []*tfpb.TensorSliceProto{extent(0, 1)}}, extentKey("x", 2, 2), &entryProto{Dtype: float, Shape: dims(2)},
			"x", &entryProto{Dtype: float, Shape: dims(4), Slices: []*tfpb.TensorSliceProto{extent(0, 2), extent(2, 2)}}}, "has parts itself"},
		"too many parts": {good, zeros, []any{"x", &entryProto{Dtype: float, Shape: dims(4), Slices: manyParts(maxSlices + 1)}}, "DataLoss: DIR/f.index: key x has 4097 parts; at most 4096 are read"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			p := forge(t, dir, c.header, c.data, c.entries...)
			pool := tensor.NewPool(tensor.PoolOptions{Limit: 8 << 20, Keep: -1})
			_, err := get(t.Context(), p, "x", "", pool)
			if got := strings.ReplaceAll(fmt.Sprint(err), dir, "DIR"); !strings.Contains(got, c.want) {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
			if s := pool.Stats(); s.InUse != 0 {
				t.Errorf("%d bytes are not released", s.InUse)
			}
		})
	}
}

func extentKey(name string, start, length int64) string { return (Slice{{start, length}}).key(name) }

func manyParts(n int) []*tfpb.TensorSliceProto {
	all := make([]*tfpb.TensorSliceProto, n)
	for i := range all {
		all[i] = extent(0, 1)
	}
	return all
}

// TestDamagedFiles: a byte that has changed is found wherever it is, and so is a file that ends early. An error names the
// file.
func TestDamagedFiles(t *testing.T) {
	dir := t.TempDir()
	write(t, in(t, dir, "f"), func(w *Writer) error {
		x := content(t, tensor.Float32, 10, 4)
		whole, s, _, err := ParseSpec("20 4 0,10:-")
		if err != nil {
			return err
		}
		return errors.Join(w.Add("x", x), w.Add("s", content(t, tensor.String, 4)), w.AddSlice("v", whole, s, x))
	})
	read := func() (all error) {
		for key, spec := range map[string]string{"x": "", "s": "", "v": "20 4 2,3:-"} {
			x, err := get(t.Context(), in(t, dir, "f"), key, spec, tensor.Heap{})
			if err == nil {
				x.Release()
			}
			all = errors.Join(all, err)
		}
		return all
	}
	if err := read(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"f.index", "f.data-00000-of-00001"} {
		path := filepath.Join(dir, name)
		good, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		padding := 0
		for i := range good {
			bad := bytes.Clone(good)
			bad[i] ^= 0x10
			put(t, path, bad)
			if err := read(); err == nil {
				padding++
			} else if !strings.Contains(err.Error(), filepath.Join(dir, "f")) {
				t.Errorf("%s, byte %d: %v", name, i, err)
			}
		}
		// Nobody reads the padding of the footer, nor the block about the table and its handle.
		if padding > footerSize-8+8+trailerSize || strings.Contains(name, "data") && padding > 0 {
			t.Errorf("%s: %d changed bytes were not found", name, padding)
		}
		for i := range len(good) - 1 {
			put(t, path, good[:i])
			if err := read(); err == nil {
				t.Errorf("%s with %d of %d bytes can be read", name, i, len(good))
			}
		}
		put(t, path, good)
	}
}

// TestCompressedBlocks: a block that is compressed is refused with what to do.
func TestCompressedBlocks(t *testing.T) {
	dir := t.TempDir()
	p := forge(t, dir, header(1), nil)
	path := filepath.Join(dir, "f.index")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	end := bytes.Index(b, []byte{0, 0, 0, 0, 1, 0, 0, 0, 0}) + 8 // the kind of the first block
	b[end] = 1
	binary.LittleEndian.PutUint32(b[end+1:], mask(crcOf(b[:end+1])))
	put(t, path, b)
	if _, err := Open(p, tensor.Heap{}); status.CodeOf(err) != status.Unimplemented || !strings.Contains(err.Error(), "save it again") {
		t.Error(err)
	}
}

// crcOf is a checksum that is not masked.
func crcOf(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

// TestMemoryIsReserved: what a reader, a writer and a merge keep is counted in the allocator before it is there.
func TestMemoryIsReserved(t *testing.T) {
	dir := t.TempDir()
	p := in(t, dir, "f")
	write(t, p, func(w *Writer) error {
		return errors.Join(w.Add("x", content(t, tensor.Float32, 1<<18)), w.Add("s", content(t, tensor.String, 1<<14)))
	})
	pool := func(limit int64) *tensor.Pool { return tensor.NewPool(tensor.PoolOptions{Limit: limit, Keep: -1}) }
	for key, n := range map[string]int64{"x": 1 << 20, "s": 1 << 20} {
		small := pool(n)
		if _, err := get(t.Context(), p, key, "", small); status.CodeOf(err) != status.ResourceExhausted {
			t.Errorf("%s with %d bytes: %v", key, n, err)
		}
		if s := small.Stats(); s.InUse != 0 {
			t.Errorf("%s: %d bytes are not released", key, s.InUse)
		}
	}
	w, err := NewWriter(t.Context(), in(t, dir, "g"), pool(1<<20))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; err == nil && i < 1<<16; i++ {
		err = w.Add(fmt.Sprint(i), ints(t, 1))
	}
	w.Close()
	if status.CodeOf(err) != status.ResourceExhausted {
		t.Errorf("65,536 entries with 1 MiB: %v", err)
	}
	write(t, p, func(w *Writer) (err error) {
		for i := range 1 << 12 {
			err = errors.Join(err, w.Add(fmt.Sprint(i), ints(t, 1)))
		}
		return err
	})
	if err := Merge(t.Context(), []Prefix{p}, Prefix{p.Root, "m", "m"}, false, pool(1<<20)); status.CodeOf(err) != status.ResourceExhausted {
		t.Errorf("a merge of 4,096 entries with 1 MiB: %v", err)
	}
}

// TestReadsAndWritesEndWithTheirContext: a step that has ended reads and writes no more, and leaves no files.
func TestReadsAndWritesEndWithTheirContext(t *testing.T) {
	dir := t.TempDir()
	p := in(t, dir, "f")
	big := content(t, tensor.Float32, 1<<20)
	write(t, p, func(w *Writer) error { return errors.Join(w.Add("x", big), w.Add("s", content(t, tensor.String, 100))) })
	ctx, cancel := context.WithCancel(t.Context())
	w, err := NewWriter(ctx, in(t, dir, "g"), tensor.Heap{})
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := w.Add("x", big); status.CodeOf(err) != status.Cancelled {
		t.Errorf("a write: %v", err)
	}
	w.Close()
	for _, key := range []string{"x", "s"} {
		if _, err := get(ctx, p, key, "", tensor.Heap{}); status.CodeOf(err) != status.Cancelled {
			t.Errorf("a read of %s: %v", key, err)
		}
	}
	if err := Merge(ctx, []Prefix{p}, Prefix{p.Root, "m", "m"}, false, tensor.Heap{}); status.CodeOf(err) != status.Cancelled {
		t.Errorf("a merge: %v", err)
	}
	wantFiles(t, dir, "f.data-00000-of-00001", "f.index")
}

// TestWrongBlocks: the numbers of a block are compared with its bytes before they are used.
func TestWrongBlocks(t *testing.T) {
	entry := func(shared, rest, value uint64, content string) []byte {
		b := binary.AppendUvarint(binary.AppendUvarint(binary.AppendUvarint(nil, shared), rest), value)
		return append(b, content...)
	}
	end := func(b []byte, restarts ...uint32) []byte {
		for _, r := range append(restarts, uint32(len(restarts))) {
			b = binary.LittleEndian.AppendUint32(b, r)
		}
		return b
	}
	long := strings.Repeat("k", maxKey)
	for name, data := range map[string][]byte{
		"nothing":                   {},
		"no restart points":         end(nil),
		"more restart points":       binary.LittleEndian.AppendUint32(end(nil, 0), 3),
		"a restart point outside":   end(entry(0, 1, 1, "kv"), 99),
		"a key that shares nothing": end(entry(1, 1, 1, "kv"), 0),
		"a key beyond the block":    end(entry(0, 3, 0, "k"), 0),
		"a value beyond the block":  end(entry(0, 1, 2, "kv"), 0),
		"a sum that overflows":      end(entry(0, 1<<63, 1<<63, "kv"), 0),
		"a number that does":        end(bytes.Repeat([]byte{0xff}, 12), 0),
		"half a number":             end([]byte{0, 0x80}, 0),
		"a long key":                end(append(entry(0, maxKey, 0, long), entry(maxKey, 1, 0, "k")...), 0),
		"a long value":              end(entry(0, 1, maxValue+1, "k"+strings.Repeat("v", maxValue+1)), 0),
	} {
		t.Run(name, func(t *testing.T) {
			b, err := parseBlock(data)
			if err == nil {
				c := cursor{block: b}
				_, err = c.seek([]byte("zzz"))
			}
			if !errors.Is(err, errBlock) && !errors.Is(err, errTooLong) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// TestWrongTables: footers and indexes that name blocks which cannot be. Nothing is allocated for them.
func TestWrongTables(t *testing.T) {
	table := func(index handle, blocks ...[]byte) []byte {
		var b []byte
		for _, content := range blocks {
			content = append(bytes.Clone(content), 0)
			b = append(b, binary.LittleEndian.AppendUint32(content, mask(crcOf(content)))...)
		}
		var footer []byte
		for _, v := range []uint64{0, 0, index.offset, index.size} {
			footer = binary.AppendUvarint(footer, v)
		}
		footer = append(footer, make([]byte, footerSize-8-len(footer))...)
		return append(b, binary.LittleEndian.AppendUint64(footer, magic)...)
	}
	indexOf := func(handles ...handle) []byte {
		b := blockBuilder{interval: 1}
		for i, h := range handles {
			b.add([]byte{'a' + byte(i)}, binary.AppendUvarint(binary.AppendUvarint(nil, h.offset), h.size))
		}
		return bytes.Clone(b.finish())
	}
	data := blockBuilder{interval: 1}
	data.add([]byte("a"), nil)
	content := bytes.Clone(data.finish())
	at, size := uint64(len(content)+trailerSize), uint64(len(content))
	twice := indexOf(handle{0, size}, handle{0, size})
	unordered := indexOf(handle{0, size}, handle{at, size})
	for name, c := range map[string]struct {
		file []byte
		want string
	}{
		"no index":                {table(handle{0, 1 << 62}), "a block of 4611686018427387904 bytes at offset 0 is outside the file"},
		"an index beyond the end": {table(handle{1 << 62, 1}), "is outside the file"},
		"a block beyond the end":  {table(handle{0, uint64(len(indexOf(handle{1 << 40, 1})))}, indexOf(handle{1 << 40, 1})), "is outside the file"},
		"a block twice":           {table(handle{at, uint64(len(twice))}, content, twice), "overlaps the one before it"},
		"a key twice":             {table(handle{2 * at, uint64(len(unordered))}, content, content, unordered), "the key a is not in order"},
		"no footer":               {[]byte("short"), "file is too short to be an sstable: 5 bytes"},
		"another file":            {make([]byte, 100), "not an sstable (bad magic number 0x0)"},
	} {
		t.Run(name, func(t *testing.T) {
			pool := tensor.NewPool(tensor.PoolOptions{Limit: 1 << 20, Keep: -1})
			x, err := openTable(bytes.NewReader(c.file), int64(len(c.file)), "f.index", pool)
			if err == nil {
				err = x.each(t.Context(), func(_, _ []byte) error { return nil })
				x.close()
			}
			if status.CodeOf(err) != status.DataLoss || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "f.index") {
				t.Errorf("got %v, want %s", err, c.want)
			}
			if s := pool.Stats(); s.InUse != 0 {
				t.Errorf("%d bytes are not released", s.InUse)
			}
		})
	}
	large, err := os.Create(filepath.Join(t.TempDir(), "large"))
	if err != nil {
		t.Fatal(err)
	}
	defer large.Close()
	footer := table(handle{0, maxBlock + 1})
	if _, err := large.WriteAt(footer, 2*maxBlock); err != nil { // the rest has no blocks on the disk
		t.Fatal(err)
	}
	if _, err := openTable(large, 2*maxBlock+int64(len(footer)), "large", tensor.Heap{}); status.CodeOf(err) != status.DataLoss || !strings.Contains(err.Error(), "at most 16777216 are read") {
		t.Errorf("a large block: %v", err)
	}
}

// TestStringsFillTheirEntry: bytes after the strings are not passed over.
func TestStringsFillTheirEntry(t *testing.T) {
	crc := addLength(0, 1)
	stored := binary.LittleEndian.AppendUint32([]byte{1}, mask(crc))
	data := append(stored, "ab"...)
	sum := mask(crcOf(append(binary.LittleEndian.AppendUint32(nil, 1), data[1:6]...)))
	for size, want := range map[int64]status.Code{6: status.OK, 7: status.DataLoss, 5: status.DataLoss} {
		p := forge(t, t.TempDir(), header(1), data, "x", &entryProto{Dtype: text, Shape: dims(1), Size: size, Crc32C: sum})
		if _, err := get(t.Context(), p, "x", "", tensor.Heap{}); status.CodeOf(err) != want {
			t.Errorf("%d bytes: %v, want %v", size, err, want)
		}
	}
}
