package npy_test

import (
	"bytes"
	"testing"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/npy"
	"github.com/tryst-rdma/tryst/tensor/tensortest"
)

// What was read becomes the same bytes again: every type, byte order and layout that NumPy wrote.
func TestEncodeGivesTheBytesThatWereRead(t *testing.T) {
	converted := 0
	for name, b := range arrays(t) {
		f, err := open(b)
		if status.CodeOf(err) == status.Unimplemented {
			continue
		}
		if err != nil {
			t.Fatal(name, err)
		}
		x, err := f.Read(tensortest.NewAllocator(t))
		if err != nil {
			t.Fatal(name, err)
		}
		if !f.Direct() {
			converted++
		}
		var out bytes.Buffer
		if err := f.Encode(&out, x); err != nil {
			t.Fatal(name, err)
		}
		if want := b[f.Info().Offset:]; !bytes.Equal(out.Bytes(), want) {
			t.Errorf("%s: got % x, want % x", name, out.Bytes(), want)
		}
		x.Release()
	}
	if converted < 20 {
		t.Errorf("only %d arrays had to be converted", converted)
	}
}

func TestEncodeRefusesWhatTheFileCannotHold(t *testing.T) {
	array := func(descr string, n int) *npy.File {
		f, err := open(file("{'descr': '"+descr+"', 'fortran_order': False, 'shape': (2,), }", string(make([]byte, n))))
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	for _, c := range []struct {
		f    *npy.File
		x    *tensor.Tensor
		want string
	}{
		{array(">i2", 4), tensortest.Tensor(t, tensor.Int16, 3), "the tensor is int16[3]; the header says int16[2]"},
		{array(">i2", 4), tensortest.Tensor(t, tensor.Uint16, 2), "the tensor is uint16[2]; the header says int16[2]"},
		{array("|S2", 4), tensortest.Strings(t, "ab", "abc"), "element 1: a string of 3 bytes; the file's elements have 2"},
		{array("<U2", 16), tensortest.Strings(t, "äé", "äéö"), "element 1: a string of more than 2 characters"},
	} {
		var out bytes.Buffer
		wantError(t, c.f.Encode(&out, c.x), status.InvalidArgument, c.want)
	}
}

func TestHeaderIsWhatWriteWrites(t *testing.T) {
	x := counting(t, tensor.Float64, shape(t, 2, 3))
	var out bytes.Buffer
	if err := npy.Write(&out, x); err != nil {
		t.Fatal(err)
	}
	h, err := npy.Header(tensor.Float64, shape(t, 2, 3))
	if err != nil || !bytes.HasPrefix(out.Bytes(), h) || out.Len() != len(h)+48 {
		t.Errorf("%q, %v; Write wrote %q", h, err, out.Bytes())
	}
	for _, d := range []tensor.DType{tensor.BFloat16, tensor.String} {
		_, err := npy.Header(d, shape(t, 2))
		wantError(t, err, status.InvalidArgument, "NumPy has no elements of type "+d.String())
	}
}
