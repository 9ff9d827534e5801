package ops

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// oddFloat returns a float of any kind: any bits, a special value, or one of the size that weights have.
func oddFloat(r *rand.Rand) float32 {
	special := []uint32{
		0, 1 << 31, 1, 1<<31 | 1, 0x7fffff, 0x800000, // zeros, denormal numbers, the smallest normal one
		0x7f7fffff, 0x7f800000, 0xff800000, 0x7fc00000, 0xffc00001, 0x7f800001, // the largest number, infinities, NaNs
	}
	switch r.IntN(4) {
	case 0:
		return math.Float32frombits(r.Uint32())
	case 1:
		return math.Float32frombits(special[r.IntN(len(special))])
	}
	return float32(r.NormFloat64())
}

// sameFloat reports whether two floats are the same bits, or both NaN: Go does not say which NaN an operation returns.
func sameFloat(a, b float32) bool {
	return math.Float32bits(a) == math.Float32bits(b) || a != a && b != b
}

func TestVectorsOfAdamHaveTheBitsOfSingleValues(t *testing.T) {
	const margin = 8 // elements on both sides of the slices, which must not change
	r := rand.New(rand.NewPCG(32, 1))
	check := func(n, offset int, nesterov bool) {
		t.Helper()
		draw := func(n int) []float32 {
			s := make([]float32, n)
			for i := range s {
				s[i] = oddFloat(r)
			}
			return s
		}
		h := draw(6)
		if r.IntN(2) == 0 {
			h = []float32{0.9, 0.999, 0.001, 0.9, 0.999, 1e-8}
		}
		var single, vectors [4][]float32 // x, m, v, g
		step := func(s [4][]float32) *step[float32] {
			part := func(i int) []float32 { return s[i][offset+i%2:][:n] }
			return &step[float32]{x: [maxVariables][]float32{part(0), part(1), part(2)}, g: part(3), h: h, nesterov: nesterov}
		}
		for i := range single {
			single[i] = draw(offset + n + margin)
			vectors[i] = slices.Clone(single[i])
		}
		adam(step(single))
		adam32(step(vectors))
		for i, name := range []string{"x", "m", "v", "g"} {
			for j, want := range single[i] {
				if got := vectors[i][j]; !sameFloat(got, want) {
					t.Fatalf("%d elements at %d, hyperparameters %v, %s[%d]: got %g (%#x), want %g (%#x)", n, offset, h,
						name, j-offset-i%2, got, math.Float32bits(got), want, math.Float32bits(want))
				}
			}
		}
	}
	for n := range 71 {
		for offset := range margin {
			check(n, offset, false)
			check(n, offset, true)
		}
	}
	for _, n := range []int{16<<10 - 1, 16 << 10, 16<<10 + 1, 40<<10 + 3} { // several calls of the vector code
		check(n, 1, false)
	}
}
