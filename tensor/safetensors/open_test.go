package safetensors_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/safetensors"
	"github.com/tryst-rdma/tryst/tensor/tensortest"
)

func wantError(t testing.TB, err error, code status.Code, text string) {
	t.Helper()
	if err == nil || status.CodeOf(err) != code || !strings.Contains(err.Error(), text) {
		t.Errorf("got  %v\nwant %v ... %s", err, code, text)
	}
}

func TestBadHeaders(t *testing.T) {
	const u8 = `{"dtype":"U8","shape":[1],"data_offsets":[0,1]}`
	for _, c := range []struct {
		name, header, data string
		code               status.Code
		want               string
	}{
		{"no object", `[]`, "", status.InvalidArgument, `does not begin with '{': "[]"`},
		{"space first", ` {}`, "", status.InvalidArgument, `does not begin with '{'`},
		{"not UTF-8", "{\"\xff\":" + u8 + "}", "x", status.InvalidArgument, "not UTF-8"},
		{"cut JSON", `{"a":`, "", status.InvalidArgument, "byte 5: the JSON text ends too early"},
		{"bad JSON", `{"a" 1}`, "", status.InvalidArgument, "byte 5: invalid character '1'"},
		{"trailing comma", `{"a":` + u8 + `,}`, "x", status.InvalidArgument, "invalid character"},
		{"after the object", `{}{}`, "", status.InvalidArgument, `byte 3: "{" where nothing more belongs`},
		{"zero padding", "{}\x00\x00", "", status.InvalidArgument, "invalid character"},
		{"tensor twice", `{"a":` + u8 + `,"a":` + u8 + `}`, "x", status.InvalidArgument, `tensor "a" stands twice`},
		{"tensor twice, escaped", `{"a":` + u8 + `,"\u0061":` + u8 + `}`, "x", status.InvalidArgument, `tensor "a" stands twice`},
		{"no tensor object", `{"a":[1]}`, "", status.InvalidArgument, `tensor "a": byte 6: "[" where an object belongs`},
		{"metadata twice", `{"__metadata__":{},"__metadata__":{}}`, "", status.InvalidArgument, "__metadata__ stands twice"},
		{"metadata key twice", `{"__metadata__":{"k":"1","k":"2"}}`, "", status.InvalidArgument, `__metadata__: key "k" stands twice`},
		{"metadata no text", `{"__metadata__":{"k":1}}`, "", status.InvalidArgument, `__metadata__: key "k": byte 22: the number "1" where a string belongs`},
		{"metadata null and again", `{"__metadata__":null,"__metadata__":{}}`, "", status.InvalidArgument, "__metadata__ stands twice"},
		{"metadata that begins like null", `{"__metadata__":nullable}`, "", status.InvalidArgument, "invalid character"},
		{"no dtype", `{"a":{"shape":[],"data_offsets":[0,0]}}`, "", status.InvalidArgument, `tensor "a": dtype is missing`},
		{"no shape", `{"a":{"dtype":"U8","data_offsets":[0,0]}}`, "", status.InvalidArgument, `tensor "a": shape is missing`},
		{"no offsets", `{"a":{"dtype":"U8","shape":[0]}}`, "", status.InvalidArgument, `tensor "a": data_offsets is missing`},
		{"case matters", `{"a":{"DType":"U8","shape":[0],"data_offsets":[0,0]}}`, "", status.InvalidArgument, "dtype is missing"},
		{"dtype twice", `{"a":{"dtype":"U8","dtype":"U8","shape":[0],"data_offsets":[0,0]}}`, "", status.InvalidArgument, `tensor "a": dtype stands twice`},
		{"shape twice", `{"a":{"dtype":"U8","shape":[0],"shape":[0],"data_offsets":[0,0]}}`, "", status.InvalidArgument, `shape stands twice`},
		{"offsets twice", `{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0],"data_offsets":[0,0]}}`, "", status.InvalidArgument, `data_offsets stands twice`},
		{"dtype unknown", `{"a":{"dtype":"C128","shape":[0],"data_offsets":[0,0]}}`, "", status.InvalidArgument, `tensor "a": dtype: "C128" is no type`},
		{"dtype number", `{"a":{"dtype":1,"shape":[0],"data_offsets":[0,0]}}`, "", status.InvalidArgument, `tensor "a": dtype: byte 15: the number "1"`},
		{"packed elements that end within a byte", `{"a":{"dtype":"F4","shape":[3],"data_offsets":[0,2]}}`, "xx", status.InvalidArgument, `tensor "a": F4[3] takes 4 bits more than whole bytes`},
		{"packed elements of 6 bits that end within a byte", `{"a":{"dtype":"F6_E3M2","shape":[2,3],"data_offsets":[0,5]}}`, "xxxxx", status.InvalidArgument, `tensor "a": F6_E3M2[2,3] takes 4 bits more than whole bytes`},
		{"packed elements in other bytes", `{"a":{"dtype":"F6_E2M3","shape":[4],"data_offsets":[0,4]}}`, "xxxx", status.InvalidArgument, `tensor "a": data_offsets: [0,4] hold 4 bytes; F6_E2M3[4] takes 3`},
		{"as many packed elements as there can be", `{"a":{"dtype":"F4","shape":[9223372036854775806],"data_offsets":[0,4611686018427387903]}}`, "x", status.DataLoss, `the tensors take 4611686018427387903 bytes`},
		{"lone surrogate in a name", `{"a\ud800":` + u8 + `}`, "x", status.InvalidArgument, `byte 3: half of a surrogate pair`},
		{"lone low surrogate", `{"\\\udc00\ud800":` + u8 + `}`, "x", status.InvalidArgument, `byte 4: half of a surrogate pair`},
		{"surrogates of a pair in the wrong order", `{"\uDE00\uD83D":` + u8 + `}`, "x", status.InvalidArgument, `byte 2: half of a surrogate pair`},
		{"lone surrogate after a pair", `{"\ud83d\ude00\ud83d!":` + u8 + `}`, "x", status.InvalidArgument, `byte 14: half of a surrogate pair`},
		{"lone surrogate in a key of the metadata", `{"__metadata__":{"\ud800":""}}`, "", status.InvalidArgument, `__metadata__: byte 18: half of a surrogate pair`},
		{"lone surrogate in the metadata", `{"__metadata__":{"k": "\ud800\u0041"}}`, "", status.InvalidArgument, `__metadata__: key "k": byte 23: half of a surrogate pair`},
		{"dimension negative", `{"a":{"dtype":"U8","shape":[2,-1],"data_offsets":[0,0]}}`, "", status.InvalidArgument, `tensor "a": shape: dimension 1: byte 32: the number "-1" where an integer`},
		{"dimension fraction", `{"a":{"dtype":"U8","shape":[1.0],"data_offsets":[0,1]}}`, "x", status.InvalidArgument, `dimension 0: byte 31: the number "1.0"`},
		{"dimension exponent", `{"a":{"dtype":"U8","shape":[1e0],"data_offsets":[0,1]}}`, "x", status.InvalidArgument, `the number "1e0"`},
		{"dimension too large", `{"a":{"dtype":"U8","shape":[9223372036854775808],"data_offsets":[0,1]}}`, "x", status.InvalidArgument, `the number "9223372036854775808"`},
		{"dimension text", `{"a":{"dtype":"U8","shape":["1"],"data_offsets":[0,1]}}`, "x", status.InvalidArgument, `the string "1"`},
		{"dimension true", `{"a":{"dtype":"U8","shape":[true],"data_offsets":[0,1]}}`, "x", status.InvalidArgument, `true where`},
		{"shape no array", `{"a":{"dtype":"U8","shape":1,"data_offsets":[0,1]}}`, "x", status.InvalidArgument, `shape: byte 28: the number "1" where an array belongs`},
		{"shape overflow", `{"a":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,1]}}`, "x", status.InvalidArgument, `tensor "a": shape: shape [4294967296,4294967296] has more than 2^63-1 elements`},
		{"bytes overflow", `{"a":{"dtype":"F64","shape":[4611686018427387904],"data_offsets":[0,8]}}`, "", status.InvalidArgument, `tensor "a": a double tensor of shape [4611686018427387904]`},
		{"too many dimensions", `{"a":{"dtype":"U8","shape":[1` + strings.Repeat(",1", 254) + `],"data_offsets":[0,1]}}`, "x", status.InvalidArgument, `tensor "a": shape: more than 254 dimensions`},
		{"one offset", `{"a":{"dtype":"U8","shape":[0],"data_offsets":[0]}}`, "", status.InvalidArgument, `data_offsets: 1 offsets where two belong`},
		{"three offsets", `{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0,0]}}`, "", status.InvalidArgument, `data_offsets: more than two offsets`},
		{"offset negative", `{"a":{"dtype":"U8","shape":[0],"data_offsets":[-1,-1]}}`, "", status.InvalidArgument, `tensor "a": data_offsets: byte 49: the number "-1"`},
		{"offset overflow", `{"a":{"dtype":"U8","shape":[1],"data_offsets":[18446744073709551615,18446744073709551616]}}`, "x", status.InvalidArgument, `the number "18446744073709551615"`},
		{"offsets reversed", `{"a":{"dtype":"U8","shape":[1],"data_offsets":[1,0]}}`, "x", status.InvalidArgument, `tensor "a": data_offsets: begin 1 is behind end 0`},
		{"size differs", `{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}}`, "1234", status.InvalidArgument, `tensor "a": data_offsets: [0,4] hold 4 bytes; float[2] takes 8`},
		{"hole at first", `{"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}`, "xx", status.InvalidArgument, `tensor "a": data_offsets: begins at 1; the tensors before it end at 0: a hole`},
		{"hole", `{"a":` + u8 + `,"b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}}`, "xxx", status.InvalidArgument, `tensor "b": data_offsets: begins at 2; the tensors before it end at 1: a hole`},
		{"overlap", `{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}`, "xx", status.InvalidArgument, `tensor "b": data_offsets: begins at 1; the tensors before it end at 2: an overlap`},
		{"same place", `{"a":` + u8 + `,"b":` + u8 + `}`, "x", status.InvalidArgument, `an overlap`},
		{"empty one inside", `{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[0],"data_offsets":[1,1]}}`, "xx", status.InvalidArgument, `an overlap`},
		{"truncated", `{"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}}`, "xx", status.DataLoss, `the tensors take 3 bytes; the file has 2 after the header`},
		{"bytes left over", `{"a":` + u8 + `}`, "xyz", status.InvalidArgument, `the tensors take 1 bytes; the file has 3 after the header, which belong to none`},
		{"bytes without tensor", `{}`, "x", status.InvalidArgument, `which belong to none`},
		{"claims 2^62 bytes", `{"a":{"dtype":"U8","shape":[4611686018427387904],"data_offsets":[0,4611686018427387904]}}`, "x", status.DataLoss, `the tensors take 4611686018427387904 bytes`},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := open(file(c.header, c.data))
			wantError(t, err, c.code, c.want)
		})
	}
}

func TestGoodHeaders(t *testing.T) {
	const a = `"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}`
	for _, c := range []struct{ name, header, data string }{
		{"nothing", `{}`, ""},
		{"spaces behind", "{" + a + "}     ", "xx"},
		{"white space", "{ \n" + a + "\t\r}\n", "xx"},
		{"unknown field", `{"a":{"dtype":"U8","extra":{"x":[1,{}]},"shape":[2],"data_offsets":[0,2]}}`, "xx"},
		{"metadata last", "{" + a + `,"__metadata__":{"k":""}}`, "xx"},
		{"order of the header is not that of the data", `{"b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]},` + a + "}", "xxx"},
		{"empty ones everywhere", `{"e":{"dtype":"F64","shape":[0],"data_offsets":[2,2]},` + a + `,"f":{"dtype":"F64","shape":[3,0],"data_offsets":[0,0]}}`, "xx"},
		{"zero count times a huge one", `{"z":{"dtype":"U8","shape":[0,4611686018427387904,4],"data_offsets":[0,0]}}`, ""},
		{"254 dimensions", `{"d":{"dtype":"F32","shape":[1` + strings.Repeat(",1", 253) + `],"data_offsets":[0,4]}}`, "1234"},
		{"pairs of surrogates", `{"\ud83d\ude00\\ud800":{"dtype":"U8","shape":[],"data_offsets":[0,1]}}`, "x"},
		{"lone surrogate in a field that is passed over", `{"a":{"x":"\ud800","dtype":"U8","shape":[],"data_offsets":[0,1]}}`, "x"},
		{"packed elements without any", `{"a":{"dtype":"F4","shape":[3,0],"data_offsets":[0,0]}}`, ""},
		{"empty name", `{"":{"dtype":"U8","shape":[],"data_offsets":[0,1]}}`, "x"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := mustOpen(t, file(c.header, c.data))
			at := int64(8 + len(c.header))
			for _, info := range f.Tensors() {
				if info.Offset != at {
					t.Errorf("%q is at %d, want %d", info.Name, info.Offset, at)
				}
				at += info.Bytes
				if got, ok := f.Lookup(info.Name); !ok || got.Offset != info.Offset || got.Name != info.Name {
					t.Errorf("Lookup(%q) = %+v, %v", info.Name, got, ok)
				}
				x, err := f.Read(info.Name, tensortest.NewAllocator(t))
				if err != nil {
					t.Fatal(err)
				}
				x.Release()
			}
		})
	}
}

// TestTruncated cuts a file at every byte: each one is refused at Open.
func TestTruncated(t *testing.T) {
	whole := golden(t, "dtypes.safetensors")
	for n := range whole {
		if _, err := open(whole[:n]); err == nil {
			t.Fatalf("a file cut to %d of %d bytes was accepted", n, len(whole))
		}
	}
}

// TestLyingHeader: lengths that a few bytes claim are not allocated.
func TestLyingHeader(t *testing.T) {
	var before, after runtime.MemStats
	for _, c := range []struct {
		length uint64
		code   status.Code
	}{
		{1 << 60, status.InvalidArgument},
		{math.MaxUint64, status.InvalidArgument},
		{safetensors.MaxHeader + 1, status.InvalidArgument},
		{safetensors.MaxHeader, status.DataLoss},
		{0, status.InvalidArgument},
	} {
		b := append(binary.LittleEndian.AppendUint64(nil, c.length), `{"a":{}}`...)
		runtime.ReadMemStats(&before)
		_, err := open(b)
		runtime.ReadMemStats(&after)
		wantCode(t, err, c.code)
		if n := after.TotalAlloc - before.TotalAlloc; n > 64<<10 {
			t.Errorf("a header length of %d made Open allocate %d bytes", c.length, n)
		}
	}
}

// TestLongNamesInErrors: a hostile name does not become a hostile message.
func TestLongNamesInErrors(t *testing.T) {
	long := strings.Repeat("n", 1<<20)
	for _, header := range []string{
		`{"` + long + `":1}`,
		`{"a":{"dtype":"` + long + `"}}`,
		`{"a":{"shape":[` + strings.Repeat("9", 1<<20) + `]}}`,
	} {
		_, err := open(file(header, ""))
		if err == nil || len(err.Error()) > 1000 {
			t.Errorf("a message of %d bytes", len(fmt.Sprint(err)))
		}
	}
}

func TestConcurrentReads(t *testing.T) {
	f := mustOpen(t, golden(t, "dtypes.safetensors"))
	a := tensortest.NewAllocator(t)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for _, info := range f.Tensors() {
				x, err := f.Read(info.Name, a)
				if err != nil {
					t.Error(err)
					return
				}
				for i, b := range x.Bytes() {
					if int(b) != i {
						t.Errorf("%s: byte %d is %d", info.Name, i, b)
					}
				}
				x.Release()
			}
		})
	}
	wg.Wait()
}

// TestReadFails: the file shrinks or breaks after Open, or memory is short.
func TestReadFails(t *testing.T) {
	whole := file(`{"w":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}`, "abcd")
	size := int64(len(whole))
	broken := errors.New("disk on fire")
	for _, c := range []struct {
		name string
		r    io.ReaderAt
		code status.Code
		want string
	}{
		{"shorter", bytes.NewReader(whole[:size-1]), status.DataLoss, `tensor "w": reading 4 bytes at offset 61: unexpected EOF`},
		{"broken", failingReader{whole, size - 4, broken}, status.Unknown, `tensor "w": reading 4 bytes at offset 61: disk on fire`},
		{"refused", failingReader{whole, size - 4, status.New(status.Aborted, "the file has changed")}, status.Aborted, `Aborted: tensor "w": reading 4 bytes at offset 61: the file has changed`},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, err := safetensors.Open(c.r, size)
			if err != nil {
				t.Fatal(err)
			}
			_, err = f.Read("w", tensortest.NewAllocator(t))
			wantError(t, err, c.code, c.want)
		})
	}
	a := tensortest.NewAllocator(t)
	a.SetLimit(3)
	_, err := mustOpen(t, whole).Read("w", a)
	wantError(t, err, status.ResourceExhausted, `tensor "w": cannot allocate 4 bytes`)

	_, err = safetensors.Open(failingReader{whole, 0, broken}, size)
	wantError(t, err, status.Unknown, "safetensors: reading 8 bytes at offset 0: disk on fire")
	if !errors.Is(err, broken) {
		t.Error("the reader's error is lost")
	}
	_, err = safetensors.Open(failingReader{whole, 8, broken}, size)
	wantError(t, err, status.Unknown, "reading 53 bytes at offset 8")
}

// failingReader fails for reads from offset from on.
type failingReader struct {
	b    []byte
	from int64
	err  error
}

func (r failingReader) ReadAt(p []byte, off int64) (int, error) {
	if off >= r.from {
		return 0, r.err
	}
	return bytes.NewReader(r.b).ReadAt(p, off)
}

func FuzzOpen(f *testing.F) {
	for _, name := range []string{"dtypes.safetensors", "shapes.safetensors", "none.safetensors", "fp4.safetensors"} {
		f.Add(golden(f, name))
	}
	f.Add(file(`{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"__metadata__":{"k":"v"}} `, "xx"))
	f.Add(file(`{"a":{"dtype":"U8","shape":[1,9223372036854775807],"x":[[{}]],"data_offsets":[1,0]}}`, "xx"))
	f.Fuzz(func(t *testing.T, b []byte) {
		file, err := open(b)
		if err != nil {
			if file != nil {
				t.Error("a file and an error")
			}
			return
		}
		var out bytes.Buffer
		var specs []safetensors.Spec
		for _, info := range file.Tensors() {
			specs = append(specs, info.Spec)
		}
		w, err := safetensors.NewWriter(&out, specs, file.Metadata())
		if err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
		total := int64(0)
		for _, info := range file.Tensors() {
			x, err := file.Read(info.Name, tensor.Heap{})
			if err != nil {
				t.Fatal(err)
			}
			if total += x.Size(); x.Size() != info.Bytes || total > int64(len(b)) {
				t.Fatalf("%q has %d bytes, the header says %d", info.Name, x.Size(), info.Bytes)
			}
			if err := w.Write(info.Name, x); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		again := mustOpen(t, out.Bytes())
		for i, info := range again.Tensors() {
			was := file.Tensors()[i]
			x, _ := again.Read(info.Name, tensor.Heap{})
			y, _ := file.Read(was.Name, tensor.Heap{})
			if info.Name != was.Name || !tensor.Equal(x, y) {
				t.Fatalf("tensor %d %q came back as %q", i, was.Name, info.Name)
			}
		}
	})
}

func BenchmarkReadHeader(b *testing.B) {
	var specs []safetensors.Spec
	for i := range 1000 { // a model of some tens of billions of parameters
		specs = append(specs, safetensors.Spec{Name: fmt.Sprintf("model.layers.%d.mlp.down_proj.weight", i),
			DType: tensor.BFloat16, Shape: shape(b, 0, 28672)})
	}
	var out bytes.Buffer
	if _, err := safetensors.NewWriter(&out, specs, nil); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(out.Len()))
	b.ReportAllocs()
	for b.Loop() {
		mustOpen(b, out.Bytes())
	}
}
