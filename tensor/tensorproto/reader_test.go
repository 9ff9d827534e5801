package tensorproto_test

import (
	"bytes"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/tensorproto"
)

// TestReader: it gives the bytes of Append, from any offset, however they are read.
func TestReader(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for name, elems := range map[string][]string{
		"none":        {},
		"one empty":   {""},
		"many empty":  make([]string, 10_000),
		"one":         {"abc"},
		"long":        {strings.Repeat("x", 300), "", strings.Repeat("y", 70_000)},
		"many short":  strings.Split(strings.Repeat("a b cde ", 3000), " "),
		"empty first": {"", "", "a", "", "b", ""},
	} {
		x, err := tensor.FromStrings(tensor.Vector(len(elems)), elems)
		if err != nil {
			t.Fatal(err)
		}
		want, err := tensorproto.Append(nil, x)
		if err != nil {
			t.Fatal(err)
		}
		if n, err := tensorproto.Size(x); n != len(want) || err != nil {
			t.Errorf("%s: Size is %d, %v; want %d", name, n, err, len(want))
		}
		for _, offset := range []int{0, 1, len(want) / 2, len(want) - 1, len(want), rng.IntN(len(want))} {
			r, err := tensorproto.NewReader(x, offset)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			var from io.Reader = r
			if offset%2 == 1 {
				from = iotest.OneByteReader(r)
			}
			if got, err := io.ReadAll(from); err != nil || !bytes.Equal(got, want[offset:]) {
				t.Errorf("%s from %d: %d bytes, %v; want %d", name, offset, len(got), err, len(want)-offset)
			}
		}
		if _, err := tensorproto.NewReader(x, len(want)+1); status.CodeOf(err) != status.OutOfRange {
			t.Errorf("%s: beyond the end: %v", name, err)
		}
		x.Release()
	}
}

func TestReaderRefusesPlainMemory(t *testing.T) {
	x, err := tensor.FromBytes(tensor.Uint8, tensor.Vector(1), []byte{1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tensorproto.NewReader(x, 0); status.CodeOf(err) != status.InvalidArgument {
		t.Error(err)
	}
	b, err := tensorproto.Append(nil, x)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := tensorproto.Size(x); n != len(b) || err != nil {
		t.Errorf("Size is %d, %v; want %d", n, err, len(b))
	}
}
