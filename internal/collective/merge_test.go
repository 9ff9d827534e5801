package collective

import (
	"math"
	"testing"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

func slice[T tensor.Element](t *testing.T, v ...T) *tensor.Tensor {
	t.Helper()
	s, err := tensor.FromSlice(tensor.Vector(len(v)), v)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func wantElements[T tensor.Element](t *testing.T, what string, got *tensor.Tensor, want ...T) {
	t.Helper()
	if !tensor.Equal(got, slice(t, want...)) {
		v, _ := tensor.Values[T](got)
		t.Errorf("%s is %v, want %v", what, v, want)
	}
}

func testMerge[T tensor.Element](t *testing.T, conv func(float64) T) {
	t.Helper()
	d := tensor.TypeOf[T]()
	ar, err := arithmeticOf(d)
	if err != nil {
		t.Fatal(err)
	}
	for m, want := range map[Merge][2]float64{Add: {10, 0}, Mul: {16, -9}, Min: {2, -3}, Max: {8, 3}, Mean: {10, 0}} {
		a, b := slice(t, conv(2), conv(3)), slice(t, conv(8), conv(-3))
		if err := ar.merge(m, b, a, b); err != nil {
			t.Fatal(err)
		}
		wantElements(t, d.String()+" "+m.String(), b, conv(want[0]), conv(want[1]))
	}
	v := slice(t, conv(8), conv(-6))
	if err := ar.divide(v, 2); err != nil {
		t.Fatal(err)
	}
	wantElements(t, d.String()+" divided", v, conv(4), conv(-3))
}

func TestMergeOfEachType(t *testing.T) {
	testMerge(t, func(f float64) float32 { return float32(f) })
	testMerge(t, func(f float64) float64 { return f })
	testMerge(t, func(f float64) int32 { return int32(f) })
	testMerge(t, func(f float64) int64 { return int64(f) })
	testMerge(t, func(f float64) tensor.Float16Bits { return tensor.Float16Bits(floatToHalf(float32(f))) })
	testMerge(t, func(f float64) tensor.BFloat16Bits { return floatToBrain(float32(f)) })
	if _, err := arithmeticOf(tensor.String); status.CodeOf(err) != status.InvalidArgument {
		t.Errorf("strings: %v", err)
	}
}

func TestMinAndMaxKeepNotANumber(t *testing.T) {
	nan := float32(math.NaN())
	for _, pair := range [][2]float32{{nan, 1}, {1, nan}} {
		if a, b := minNumber(pair[0], pair[1]), maxNumber(pair[0], pair[1]); a == a || b == b {
			t.Errorf("of %v: %v and %v", pair, a, b)
		}
	}
}

// TestHalfRoundTrip converts every half, and the float in the middle between it and the next.
func TestHalfRoundTrip(t *testing.T) {
	for h := range uint16(0x7c00) {
		f := halfToFloat(h)
		if got := floatToHalf(f); got != h {
			t.Fatalf("%#04x is %v, and %v is %#04x", h, f, f, got)
		}
		if got := floatToHalf(-f); got != h|0x8000 {
			t.Fatalf("−%v is %#04x, want %#04x", f, got, h|0x8000)
		}
		if h == 0x7bff {
			break // above it is infinity
		}
		middle := (f + halfToFloat(h+1)) / 2
		if got, even := floatToHalf(middle), h+h&1; got != even {
			t.Fatalf("%v, in the middle above %#04x, is %#04x, want %#04x", middle, h, got, even)
		}
	}
	if floatToHalf(65520) != 0x7c00 || floatToHalf(1e9) != 0x7c00 || floatToHalf(65519) != 0x7bff {
		t.Error("numbers that are too large do not become infinity")
	}
	if h := floatToHalf(float32(math.NaN())); halfToFloat(h) == halfToFloat(h) {
		t.Error("not-a-number is lost")
	}
	if floatToBrain(1.00390625) != 0x3f80 || floatToBrain(1.01171875) != 0x3f82 {
		t.Error("bfloat16 does not round to even")
	}
}

func TestParseMergeNamesTheChoices(t *testing.T) {
	if m, divide, err := parseMerge("Max", "Div"); m != Max || !divide || err != nil {
		t.Errorf("Max, Div: %v, %v, %v", m, divide, err)
	}
	for _, bad := range [][2]string{{"Mean", "Id"}, {"", "Id"}, {"Add", "Sqrt"}} {
		if _, _, err := parseMerge(bad[0], bad[1]); status.CodeOf(err) != status.InvalidArgument {
			t.Errorf("%v: %v", bad, err)
		}
	}
	if Merge(9).String() != "Merge(?)" {
		t.Error(Merge(9).String())
	}
}
