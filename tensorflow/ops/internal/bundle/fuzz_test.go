package bundle

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"github.com/tryst-rdma/tryst/tensor"
)

// FuzzIndex reads any index: all its entries, each of them by its key, and a merge of it. Nothing panics, and no memory is
// taken beyond the allocator.
func FuzzIndex(f *testing.F) {
	for _, name := range []string{"whole", "parts", "merged"} {
		b, err := os.ReadFile(filepath.Join("testdata", name+".index"))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, []byte("some elements"))
	}
	f.Fuzz(func(t *testing.T, index, data []byte) {
		pool := tensor.NewPool(tensor.PoolOptions{Limit: 32 << 20, Keep: -1})
		fix(index)
		dir := t.TempDir()
		put(t, filepath.Join(dir, "f.index"), index)
		put(t, filepath.Join(dir, "f.data-00000-of-00001"), data)
		p := in(t, dir, "f")
		r, err := Open(p, pool)
		if err != nil {
			return
		}
		defer func() {
			if s := pool.Stats(); s.InUse != 0 {
				t.Errorf("%d bytes are not released", s.InUse)
			}
		}()
		defer r.Close()
		var keys []string
		_ = r.table.each(t.Context(), func(key, _ []byte) error { // an error is an answer, here and below
			if len(keys) < 100 {
				keys = append(keys, string(key))
			}
			return nil
		})
		for _, key := range keys {
			e, err := r.Lookup(key)
			if err != nil {
				continue
			}
			if x, err := r.Read(t.Context(), key, e, nil); err == nil {
				x.Release()
			}
			if e.Shape.Rank() > 0 && e.Shape.Dim(0) > 1 {
				s := make(Slice, e.Shape.Rank())
				for i := range s {
					s[i] = Extent{0, Full}
				}
				s[0] = Extent{1, 1}
				if x, err := r.Read(t.Context(), key, e, s); err == nil {
					x.Release()
				}
			}
		}
		_ = Merge(t.Context(), []Prefix{p}, Prefix{p.Root, "m", "m"}, false, pool)
	})
}

// fix makes the checksums of the blocks right that footer and index name, so that the fuzzer gets behind them.
func fix(b []byte) {
	if len(b) < footerSize {
		return
	}
	seal := func(h handle) ([]byte, bool) {
		n := uint64(len(b))
		if h.offset > n || h.size > n-h.offset || n-h.offset-h.size < trailerSize {
			return nil, false
		}
		p := b[h.offset : h.offset+h.size+trailerSize]
		p[h.size] = 0
		binary.LittleEndian.PutUint32(p[h.size+1:], mask(crcOf(p[:h.size+1])))
		return p[:h.size], true
	}
	_, rest, err := parseHandle(b[len(b)-footerSize:])
	if err != nil {
		return
	}
	at, _, err := parseHandle(rest)
	if err != nil {
		return
	}
	content, ok := seal(at)
	if !ok {
		return
	}
	index, err := parseBlock(bytes.Clone(content))
	if err != nil {
		return
	}
	c := cursor{block: index}
	for {
		ok, err := c.next()
		if !ok || err != nil {
			break
		}
		if h, _, err := parseHandle(c.value); err == nil {
			seal(h)
		}
	}
	seal(at)
}

// FuzzStrings reads any elements of a tensor of strings.
func FuzzStrings(f *testing.F) {
	f.Add([]byte("\x01\x02xxxxabc"), int64(2))
	f.Add([]byte("\x00\x00\x00\x00\x00"), int64(1))
	f.Add([]byte{}, int64(0))
	f.Fuzz(func(t *testing.T, data []byte, n int64) {
		if n < 0 || n > 1<<20 {
			return
		}
		dir := t.TempDir()
		p := forge(t, dir, header(1), data, "x", &entryProto{Dtype: text, Shape: dims(n), Size: int64(len(data))})
		pool := tensor.NewPool(tensor.PoolOptions{Limit: 32 << 20, Keep: -1})
		if x, err := get(t.Context(), p, "x", "", pool); err == nil {
			x.Release()
		}
		if s := pool.Stats(); s.InUse != 0 {
			t.Errorf("%d bytes are not released", s.InUse)
		}
	})
}

// FuzzSpec parses any element of shape_and_slices. What is parsed has a text that gives the same.
func FuzzSpec(f *testing.F) {
	f.Add("4 2 0,3:-")
	f.Add("3")
	f.Add("4 9223372036854775807,9223372036854775807")
	f.Fuzz(func(t *testing.T, spec string) {
		whole, s, part, err := ParseSpec(spec)
		if err != nil {
			return
		}
		if box := s.within(whole); part.Elements() > whole.Elements() || box.elements() != part.Elements() {
			t.Errorf("%q: %v of %v is %v", spec, s, whole, part)
		}
		again, s2, _, err := ParseSpec(specOf(whole, s.String()))
		if err != nil || !again.Equal(whole) || s2.key("x") != s.key("x") {
			t.Errorf("%q: %v, %v", spec, s2, err)
		}
		if p := sliceOf(s.proto()); p.key("x") != s.key("x") {
			t.Errorf("%q: the message has %v", spec, p)
		}
	})
}
