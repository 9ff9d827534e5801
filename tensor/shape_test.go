package tensor

import (
	"encoding/binary"
	"math"
	"math/big"
	"slices"
	"strings"
	"testing"

	"github.com/tryst-rdma/tryst/status"
)

// TestX8Shape: at most 254 dimensions; a negative one or an overflow of the
// product, taken in order, is refused.
func TestX8Shape(t *testing.T) {
	ones := func(n int) []int64 { return slices.Repeat([]int64{1}, n) }
	for _, c := range []struct {
		name     string
		dims     []int64
		elements int64  // when it is valid
		refused  string // else part of the reason
	}{
		{"scalar", nil, 1, ""},
		{"vector", []int64{7}, 7, ""},
		{"matrix", []int64{2, 3}, 6, ""},
		{"empty", []int64{0}, 0, ""},
		{"empty inside", []int64{2, 0, 3}, 0, ""},
		{"254 dimensions", ones(254), 1, ""},
		{"255 dimensions", ones(255), 0, "255 dimensions; at most 254"},
		{"largest", []int64{math.MaxInt64}, math.MaxInt64, ""},
		{"largest product", []int64{1 << 31, 1 << 31}, 1 << 62, ""},
		{"overflow", []int64{1 << 32, 1 << 31}, 0, "more than 2^63-1"},
		{"overflow by one", []int64{2, 1 << 62}, 0, "more than 2^63-1"},
		{"wraps to a positive number", []int64{1 << 33, 1<<31 + 1}, 0, "more than 2^63-1"},
		{"zero first", []int64{0, 1 << 62, 4}, 0, ""},
		{"zero too late", []int64{1 << 62, 4, 0}, 0, "more than 2^63-1"},
		{"negative", []int64{2, -1}, 0, "dimension 1 is negative (-1)"},
		{"negative after zero", []int64{0, -5}, 0, "dimension 1 is negative (-5)"},
		{"most negative", []int64{math.MinInt64}, 0, "negative"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := NewShape(c.dims...)
			if c.refused != "" {
				if status.CodeOf(err) != status.InvalidArgument || !strings.Contains(err.Error(), c.refused) {
					t.Fatalf("got %v, %v; want InvalidArgument with %q", s, err, c.refused)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if s.Rank() != len(c.dims) || s.Elements() != c.elements || !slices.Equal(s.Dims(), c.dims) {
				t.Errorf("rank %d, elements %d, dims %v", s.Rank(), s.Elements(), s.Dims())
			}
		})
	}
}

func TestShapeOfEveryRank(t *testing.T) {
	for rank := range MaxDims + 1 {
		dims := make([]int64, rank)
		for i := range dims {
			dims[i] = 1 + int64(i%2)*int64(min(1, max(0, 8-i))) // 1 2 1 2 …, then 1
		}
		s, err := NewShape(dims...)
		if err != nil || s.Rank() != rank {
			t.Fatalf("rank %d: %v, %v", rank, s, err)
		}
		for i, d := range dims {
			if s.Dim(i) != d {
				t.Fatalf("rank %d: dimension %d is %d, want %d", rank, i, s.Dim(i), d)
			}
		}
	}
}

func TestShapeIsImmutable(t *testing.T) {
	dims := []int64{2, 3}
	s, err := NewShape(dims...)
	if err != nil {
		t.Fatal(err)
	}
	dims[0] = 9
	s.Dims()[1] = 9
	if got := s.AppendDims([]int64{1}); !slices.Equal(got, []int64{1, 2, 3}) {
		t.Errorf("AppendDims gave %v", got)
	}
	if s.String() != "[2,3]" || s.Elements() != 6 {
		t.Errorf("shape changed to %v", s)
	}
}

func TestShapeEqualAndString(t *testing.T) {
	a, _ := NewShape(2, 3)
	b, _ := NewShape(3, 2)
	if a.Equal(b) || !a.Equal(a) || a.Equal(Shape{}) || !Vector(4).Equal(Vector(4)) {
		t.Error("Equal does not compare the dimensions")
	}
	empty, _ := NewShape()
	if !empty.Equal(Shape{}) || empty.String() != "[]" || Vector(4).String() != "[4]" {
		t.Errorf("scalar %v, vector %v", empty, Vector(4))
	}
	if Vector(0).Elements() != 0 {
		t.Error("an empty vector has elements")
	}
	mustPanic(t, "negative length", func() { Vector(-1) })
}

func TestByteSize(t *testing.T) {
	big, _ := NewShape(math.MaxInt64 / 8)
	for _, c := range []struct {
		dtype DType
		shape Shape
		want  int // -1: refused
	}{
		{Float32, Shape{}, 4},
		{Complex128, Vector(3), 48},
		{Bool, Vector(0), 0},
		{Uint8, big, math.MaxInt64 / 8},
		{Float64, big, math.MaxInt64 / 8 * 8},
		{Complex128, big, -1},
		{String, Vector(1), -1},
		{Invalid, Vector(1), -1},
	} {
		n, err := ByteSize(c.dtype, c.shape)
		if c.want < 0 {
			if status.CodeOf(err) != status.InvalidArgument {
				t.Errorf("%v%v: got %d, %v; want InvalidArgument", c.dtype, c.shape, n, err)
			}
		} else if err != nil || n != c.want {
			t.Errorf("%v%v: got %d, %v; want %d", c.dtype, c.shape, n, err, c.want)
		}
	}
}

// FuzzNewShape compares with arithmetic that cannot overflow.
func FuzzNewShape(f *testing.F) {
	seed := func(dims ...int64) {
		var b []byte
		for _, d := range dims {
			b = binary.LittleEndian.AppendUint64(b, uint64(d))
		}
		f.Add(b)
	}
	seed()
	seed(2, 3)
	seed(0, 1<<62, 4)
	seed(1<<62, 4, 0)
	seed(1<<33, 1<<31+1)
	seed(-1)
	f.Fuzz(func(t *testing.T, b []byte) {
		var dims []int64
		for ; len(b) >= 8; b = b[8:] {
			dims = append(dims, int64(binary.LittleEndian.Uint64(b)))
		}
		valid := len(dims) <= MaxDims
		count := big.NewInt(1)
		for _, d := range dims {
			count.Mul(count, big.NewInt(d))
			if d < 0 || !count.IsInt64() {
				valid = false
				break
			}
		}
		s, err := NewShape(dims...)
		if (err == nil) != valid {
			t.Fatalf("%v: %v", dims, err)
		}
		if err == nil && s.Elements() != count.Int64() {
			t.Fatalf("%v has %d elements, want %d", dims, s.Elements(), count)
		}
		if n, err := ByteSize(Complex128, s); err == nil && int64(n)/16 != s.Elements() {
			t.Fatalf("%v: %d bytes", dims, n)
		}
	})
}
