package npy_test

import (
	"archive/zip"
	"bytes"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/npy"
	"github.com/tryst-rdma/tryst/tensor/tensortest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// arrays returns NumPy's own files by name (testdata/make.py).
func arrays(t testing.TB) map[string][]byte {
	t.Helper()
	archive, err := zip.OpenReader("testdata/arrays.npz")
	if err != nil {
		t.Fatal(err)
	}
	defer archive.Close()
	files := make(map[string][]byte)
	for _, member := range archive.File {
		r, err := member.Open()
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[strings.TrimSuffix(member.Name, ".npy")] = b
	}
	return files
}

func open(b []byte) (*npy.File, error) { return npy.Open(bytes.NewReader(b), int64(len(b))) }

func read(b []byte, a tensor.Allocator) (*tensor.Tensor, error) {
	f, err := open(b)
	if err != nil {
		return nil, err
	}
	return f.Read(a)
}

func shape(t testing.TB, dims ...int64) tensor.Shape {
	t.Helper()
	s, err := tensor.NewShape(dims...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// counting returns a tensor whose bytes count up from 0.
func counting(t testing.TB, d tensor.DType, s tensor.Shape) *tensor.Tensor {
	t.Helper()
	x, err := tensor.Allocate(tensor.Heap{}, d, s)
	if err != nil {
		t.Fatal(err)
	}
	for i := range x.Bytes() {
		x.Bytes()[i] = byte(i)
	}
	return x
}

func wantError(t testing.TB, err error, code status.Code, text string) {
	t.Helper()
	if err == nil || status.CodeOf(err) != code || !strings.Contains(err.Error(), text) {
		t.Errorf("got  %v\nwant %v ... %s", err, code, text)
	}
}

var types = map[string]tensor.DType{
	"b1": tensor.Bool,
	"i1": tensor.Int8, "u1": tensor.Uint8,
	"i2": tensor.Int16, "u2": tensor.Uint16,
	"i4": tensor.Int32, "u4": tensor.Uint32,
	"i8": tensor.Int64, "u8": tensor.Uint64,
	"f2": tensor.Float16, "f4": tensor.Float32, "f8": tensor.Float64,
	"c8": tensor.Complex64, "c16": tensor.Complex128,
}

// TestReadNumPy reads every type in both byte orders and both layouts, every
// form of shape, and all versions.
func TestReadNumPy(t *testing.T) {
	seen := map[string]int{}
	for name, b := range arrays(t) {
		dir, base := path.Split(name)
		var want *tensor.Tensor
		switch dir {
		case "plain/":
			code, _, _ := strings.Cut(base, "-")
			want = counting(t, types[code], shape(t, 2, 3, 4))
			if code == "b1" {
				want, _ = tensor.FromSlice(shape(t, 1, 3), []bool{true, false, true})
			}
		case "shape/":
			dims := []int64{}
			base = strings.TrimSuffix(base, "-f")
			for part := range strings.SplitSeq(base, "x") {
				if d, err := strconv.ParseInt(part, 10, 64); err == nil {
					dims = append(dims, d)
				}
			}
			want = counting(t, tensor.Int16, shape(t, dims...))
		case "version/":
			want = counting(t, tensor.Int16, shape(t, 2, 3))
			if strconv.Itoa(int(b[6])) != base {
				t.Errorf("%s is of version %d", name, b[6])
			}
		default:
			continue
		}
		seen[dir]++
		got, err := read(b, tensortest.NewAllocator(t))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if !tensor.Equal(got, want) {
			t.Errorf("%s:\ngot  %v % x\nwant %v % x", name, got, got.Bytes(), want, want.Bytes())
		}
		got.Release()
	}
	if want := map[string]int{"plain/": 13*4 + 1, "shape/": 15, "version/": 3}; fmt.Sprint(seen) != fmt.Sprint(want) {
		t.Errorf("read %v files, want %v", seen, want)
	}
}

func TestReadNumPyText(t *testing.T) {
	files := arrays(t)
	for name, want := range map[string][]string{
		"text/U-little": {"a", "bc", "", "déf", "😀", "x\x00y"},
		"text/U-big":    {"a", "bc", "", "déf", "😀", "x\x00y"},
		"text/U-f":      {"a", "bc", "", "déf", "😀", "x\x00y"},
		"text/S":        {"a", "bc", "", "d\xe9f", "\xff\xfe\xfd\xfc", "x\x00y"},
	} {
		got, err := read(files[name], tensor.Heap{})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got.DType() != tensor.String || !got.Shape().Equal(shape(t, 2, 3)) || !slices.Equal(got.Elements(), want) {
			t.Errorf("%s: got %v %q, want %q", name, got, got.Elements(), want)
		}
	}
}

func TestReadNumPyRefused(t *testing.T) {
	files := arrays(t)
	for name, want := range map[string]string{
		"refused/object":     `npy: header: descr: "|O" is not supported: objects are stored as a pickle`,
		"refused/structured": "descr: structured elements are not supported",
		"refused/void":       `descr: "|V3" is not supported: bytes without a type`,
		"refused/bfloat16":   `descr: "<V2" is not supported: bytes without a type; NumPy stores bfloat16`,
		"refused/datetime":   `descr: "<M8[s]" is not supported: dates and times`,
		"refused/longdouble": `descr: "<f16" is not supported: no tensor type has this size`,
	} {
		_, err := open(files[name])
		wantError(t, err, status.Unimplemented, want)
	}
}

func TestInfo(t *testing.T) {
	f, err := open(arrays(t)["plain/f4-f-big"])
	if err != nil {
		t.Fatal(err)
	}
	got := f.Info()
	if got.DType != tensor.Float32 || !got.Shape.Equal(shape(t, 2, 3, 4)) || got.Descr != ">f4" ||
		!got.FortranOrder || got.Offset != 128 || got.Bytes != 96 {
		t.Errorf("got %+v", got)
	}
}

// TestTruncated cuts files at every byte: each one is refused at Open.
func TestTruncated(t *testing.T) {
	files := arrays(t)
	for _, name := range []string{"plain/i2-c-little", "version/2", "text/U-f"} {
		whole := files[name]
		for n := range whole {
			_, err := open(whole[:n])
			wantError(t, err, status.DataLoss, "npy: ")
		}
		_, err := open(append(whole, 0))
		wantError(t, err, status.InvalidArgument, "which is more than one array")
	}
}

// file returns a file of version 1.0 with the given header.
func file(header, data string) []byte {
	b := append([]byte("\x93NUMPY\x01\x00"), byte(len(header)), byte(len(header)>>8))
	return append(append(b, header...), data...)
}

func TestHeaderForms(t *testing.T) {
	for _, c := range []struct {
		name, header string
		bytes        int
		want         string
	}{
		{"any order, no comma, no space", "{'shape':(2,3),'descr':'<i2','fortran_order':False}", 12, "int16[2,3]"},
		{"double quotes", `{"shape": (2,), "descr": "|u1", "fortran_order": True}`, 2, "uint8[2]"},
		{"Python 2 long integers", "{'descr': '<f4', 'fortran_order': False, 'shape': (2L, 1L), }\n", 8, "float[2,1]"},
		{"white space", " \t{ 'descr' : '<f4' ,\n'fortran_order' : False , 'shape' : ( 2 , 1 , ) , } \r\n", 8, "float[2,1]"},
		{"no byte order", "{'descr': 'f8', 'fortran_order': False, 'shape': ()}", 8, "double[]"},
		{"native byte order", "{'descr': '=f8', 'fortran_order': False, 'shape': ()}", 8, "double[]"},
		{"huge times zero", "{'descr': '<f8', 'fortran_order': False, 'shape': (0, 4611686018427387904)}", 0, "double[0,4611686018427387904]"},
		{"huge times zero, Fortran", "{'descr': '<f8', 'fortran_order': True, 'shape': (0, 4611686018427387904)}", 0, "double[0,4611686018427387904]"},
		{"characters times zero", "{'descr': '<U2147483647', 'fortran_order': True, 'shape': (0, 3)}", 0, "string[0,3]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			x, err := read(file(c.header, strings.Repeat("\x01", c.bytes)), tensor.Heap{})
			if err != nil {
				t.Fatal(err)
			}
			if x.String() != c.want {
				t.Errorf("got %v, want %s", x, c.want)
			}
		})
	}
}

func TestBadHeaders(t *testing.T) {
	dict := func(descr, fortran, shape string) string {
		return "{'descr': " + descr + ", 'fortran_order': " + fortran + ", 'shape': " + shape + "}"
	}
	for _, c := range []struct {
		name, header, data string
		code               status.Code
		want               string
	}{
		{"empty", "", "", status.InvalidArgument, "npy: header: byte 0: the header ends where '{' belongs"},
		{"no dictionary", "[1]", "", status.InvalidArgument, "byte 0: '[' where '{' belongs"},
		{"cut", "{'descr'", "", status.InvalidArgument, "byte 8: the header ends where ':' belongs"},
		{"cut in a string", "{'des", "", status.InvalidArgument, "byte 1: a string without an end"},
		{"cut behind a value", "{'descr': '<f4'", "", status.InvalidArgument, "byte 15: the header ends where ',' or '}' belongs"},
		{"key no string", "{descr: 1}", "", status.InvalidArgument, "byte 1: 'd' where a string belongs"},
		{"key unknown", "{'size': 1}", "", status.InvalidArgument, `key "size" is none of`},
		{"key escaped", `{'d\x65scr': 1}`, "", status.InvalidArgument, `byte 3: '\\' where a plain character belongs`},
		{"two commas", "{'descr': '<f4',, }", "", status.InvalidArgument, "byte 16: ',' where a string belongs"},
		{"behind the dictionary", dict("'|u1'", "False", "()") + " + f()", "x", status.InvalidArgument, "'+' where the end belongs"},
		{"zeros behind", dict("'|u1'", "False", "()") + "\x00", "x", status.InvalidArgument, `'\x00' where the end belongs`},
		{"descr missing", "{'fortran_order': False, 'shape': ()}", "", status.InvalidArgument, "descr is missing"},
		{"order missing", "{'descr': '<f4', 'shape': ()}", "", status.InvalidArgument, "fortran_order is missing"},
		{"shape missing", "{'descr': '<f4', 'fortran_order': False}", "", status.InvalidArgument, "shape is missing"},
		{"descr twice", "{'descr': '<f4', 'descr': '<f4'}", "", status.InvalidArgument, "descr stands twice"},
		{"order twice", "{'fortran_order': True, 'fortran_order': True}", "", status.InvalidArgument, "fortran_order stands twice"},
		{"shape twice", "{'shape': (), 'shape': ()}", "", status.InvalidArgument, "shape stands twice"},
		{"descr number", dict("4", "False", "()"), "", status.InvalidArgument, "descr: byte 10: '4' where a string belongs"},
		{"descr empty", dict("''", "False", "()"), "", status.InvalidArgument, `descr: "" is no type of NumPy`},
		{"descr order only", dict("'<'", "False", "()"), "", status.InvalidArgument, `descr: "<" is no type of NumPy`},
		{"descr unknown", dict("'<q8'", "False", "()"), "", status.InvalidArgument, `descr: "<q8" is no type of NumPy`},
		{"descr float of 3 bytes", dict("'<f3'", "False", "()"), "", status.Unimplemented, `descr: "<f3" is not supported`},
		{"descr float of text", dict("'<fx'", "False", "()"), "", status.InvalidArgument, `descr: "<fx" is no type`},
		{"descr two types", dict("'f4,f4'", "False", "()"), "", status.InvalidArgument, `descr: "f4,f4" is no type`},
		{"descr subarray", dict("('<f4', (2,))", "False", "()"), "", status.Unimplemented, `structured`},
		{"characters without length", dict("'|S'", "False", "()"), "", status.InvalidArgument, `descr: "|S" is no type`},
		{"characters too long", dict("'<U2147483648'", "False", "()"), "", status.InvalidArgument, `is no type`},
		{"characters of no bytes", dict("'|S0'", "False", "(1152921504606846976,)"), "", status.Unimplemented, `descr: "|S0" is not supported: elements without bytes`},
		{"order a number", dict("'<f4'", "0", "()"), "", status.InvalidArgument, "fortran_order: byte 34: '0' where True or False belongs"},
		{"order longer", dict("'<f4'", "Falsehood", "()"), "", status.InvalidArgument, "'h' where ',' or '}' belongs"},
		{"shape a list", dict("'<f4'", "False", "[1]"), "", status.InvalidArgument, "shape: byte 50: '[' where '(' belongs"},
		{"shape no tuple", dict("'<f4'", "False", "(1)"), "", status.InvalidArgument, "shape: byte 52: ')' where ',' (one number in brackets"},
		{"shape negative", dict("'<f4'", "False", "(2, -1)"), "", status.InvalidArgument, "shape: byte 54: '-' where a dimension of at least 0"},
		{"shape None", dict("'<f4'", "False", "(None,)"), "", status.InvalidArgument, "'N' where a dimension"},
		{"shape fraction", dict("'<f4'", "False", "(1.5,)"), "", status.InvalidArgument, "'.' where ','"},
		{"shape without commas", dict("'<f4'", "False", "(1, 2 3)"), "", status.InvalidArgument, "'3' where ','"},
		{"shape only a comma", dict("'<f4'", "False", "(,)"), "", status.InvalidArgument, "',' where a dimension"},
		{"shape without end", "{'shape': (1, 2", "", status.InvalidArgument, "the header ends where ',' belongs"},
		{"dimension too large", dict("'<f4'", "False", "(9223372036854775808,)"), "", status.InvalidArgument, `shape: byte 51: dimension "9223372036854775808" is above 2^63-1`},
		{"too many elements", dict("'<f4'", "False", "(4294967296, 4294967296)"), "", status.InvalidArgument, "shape: shape [4294967296,4294967296] has more than 2^63-1 elements"},
		{"too many dimensions", dict("'|u1'", "False", "(1,"+strings.Repeat(" 1,", 254)+")"), "x", status.InvalidArgument, "shape: byte 813: more than 254 dimensions"},
		{"claims 2^63 bytes", dict("'<f8'", "True", "(1152921504606846976,)"), "x", status.DataLoss, "the header says 1152921504606846976 elements of 8 bytes; the file has 1 bytes after it"},
		{"claims 2^60 strings", dict("'<U9'", "False", "(1152921504606846976,)"), "x", status.DataLoss, "elements of 36 bytes; the file has 1"},
		{"bytes left over", dict("'|u1'", "False", "()"), "xy", status.InvalidArgument, "the header says 1 elements of 1 bytes; the file has 2 bytes after it, which is more than one array"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := open(file(c.header, c.data))
			wantError(t, err, c.code, c.want)
		})
	}
}

func TestNotNumPy(t *testing.T) {
	for _, c := range []struct {
		file string
		code status.Code
		want string
	}{
		{"", status.DataLoss, "the file has 0 bytes"},
		{"\x93NUMPX\x01\x00\x00\x00", status.InvalidArgument, `the file begins with "\x93NUMPX", not with "\x93NUMPY"`},
		{"PK\x03\x04\x00\x00\x00\x00\x00\x00", status.Unimplemented, "a zip archive (.npz)"},
		{"\x93NUMPY\x04\x00\x00\x00\x00\x00", status.Unimplemented, "format version 4.0; 1.0, 2.0 and 3.0 are read"},
		{"\x93NUMPY\x01\x01\x00\x00", status.Unimplemented, "format version 1.1"},
		{"\x93NUMPY\x00\x00\x00\x00", status.Unimplemented, "format version 0.0"},
		{"\x93NUMPY\x02\x00\xff\xff\xff\xff", status.InvalidArgument, "a header of 4294967295 bytes; at most 65535 are read"},
		{"\x93NUMPY\x01\x00\xff\xff{}", status.DataLoss, "a header of 65535 bytes; the file has 2 left for it"},
	} {
		_, err := open([]byte(c.file))
		wantError(t, err, c.code, c.want)
	}
}

func TestBadCharacters(t *testing.T) {
	header := "{'descr': '<U1', 'fortran_order': True, 'shape': (2, 2)}"
	for _, bad := range []string{"\x00\xd8\x00\x00", "\x00\x00\x11\x00", "\xff\xff\xff\xff"} {
		_, err := read(file(header, "a\x00\x00\x00"+bad+"b\x00\x00\x00c\x00\x00\x00"), tensor.Heap{})
		wantError(t, err, status.InvalidArgument, "npy: element 2: 0x")
	}
}

// TestReadFails: the file shrinks or breaks after Open, or memory is short.
func TestReadFails(t *testing.T) {
	files := arrays(t)
	for _, name := range []string{"plain/f4-c-little", "plain/f4-f-big", "text/U-f"} {
		whole := files[name]
		size := int64(len(whole))
		f, err := npy.Open(bytes.NewReader(whole[:size-1]), size)
		if err != nil {
			t.Fatal(err)
		}
		_, err = f.Read(tensortest.NewAllocator(t))
		wantError(t, err, status.DataLoss, "npy: reading")
	}
	a := tensortest.NewAllocator(t)
	a.SetLimit(10)
	_, err := read(files["plain/f4-c-little"], a)
	wantError(t, err, status.ResourceExhausted, "npy: cannot allocate 96 bytes")
	broken := errors.New("disk on fire")
	_, err = npy.Open(failingReader{broken}, 100)
	wantError(t, err, status.Unknown, "npy: reading 12 bytes at offset 0: disk on fire")
	if !errors.Is(err, broken) {
		t.Error("the reader's error is lost")
	}
}

type failingReader struct{ err error }

func (r failingReader) ReadAt([]byte, int64) (int, error) { return 0, r.err }

// TestFortranInChunks: an array larger than what is read at once.
func TestFortranInChunks(t *testing.T) {
	const rows, columns = 1001, 517
	data := make([]byte, rows*columns*4)
	want := make([]int32, rows*columns)
	for r := range rows {
		for c := range columns {
			v := int32(r*columns + c)
			want[r*columns+c] = v
			at := (c*rows + r) * 4
			data[at], data[at+1], data[at+2], data[at+3] = byte(v), byte(v>>8), byte(v>>16), byte(v>>24)
		}
	}
	header := fmt.Sprintf("{'descr': '<i4', 'fortran_order': True, 'shape': (%d, %d), }", rows, columns)
	x, err := read(file(header, string(data)), tensor.Heap{})
	if err != nil {
		t.Fatal(err)
	}
	got, err := tensor.Values[int32](x)
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("wrong order, %v", err)
	}
}

func TestConcurrentReads(t *testing.T) {
	f, err := open(arrays(t)["plain/f4-f-big"])
	if err != nil {
		t.Fatal(err)
	}
	want := counting(t, tensor.Float32, shape(t, 2, 3, 4))
	a := tensortest.NewAllocator(t)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			x, err := f.Read(a)
			if err != nil {
				t.Error(err)
				return
			}
			if !tensor.Equal(x, want) {
				t.Error("wrong content")
			}
			x.Release()
		})
	}
	wg.Wait()
}

func FuzzNpyHeader(f *testing.F) {
	for _, b := range arrays(f) {
		f.Add(b)
	}
	f.Add(file("{'shape':(2L,3L,),\"descr\":'>c8','fortran_order':True}", strings.Repeat("x", 48)))
	f.Add(file("{'descr': '<U1', 'fortran_order': True, 'shape': (1,)}", "a\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		file, err := open(b)
		if err != nil {
			return
		}
		if info := file.Info(); info.Offset+info.Bytes != int64(len(b)) {
			t.Fatalf("%+v does not cover %d bytes", info, len(b))
		}
		x, err := file.Read(tensor.Heap{})
		if err != nil {
			if file.Info().DType != tensor.String {
				t.Fatal(err)
			}
			return
		}
		var out bytes.Buffer
		if err := npy.Write(&out, x); err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
		again, err := read(out.Bytes(), tensor.Heap{})
		if err != nil || !tensor.Equal(x, again) {
			t.Fatalf("%v came back as %v, %v", x, again, err)
		}
	})
}

func BenchmarkRead(b *testing.B) {
	const n = 2048
	for _, c := range []struct{ name, descr, fortran string }{
		{"little", "<f4", "False"}, {"big", ">f4", "False"}, {"fortran", "<f4", "True"},
	} {
		b.Run(c.name, func(b *testing.B) {
			header := fmt.Sprintf("{'descr': '%s', 'fortran_order': %s, 'shape': (%d, %d), }", c.descr, c.fortran, n, n)
			f, err := open(file(header, strings.Repeat("\x00\x00\x80\x3f", n*n)))
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(n * n * 4)
			for b.Loop() {
				x, err := f.Read(tensor.Heap{})
				if err != nil {
					b.Fatal(err)
				}
				x.Release()
			}
		})
	}
}
