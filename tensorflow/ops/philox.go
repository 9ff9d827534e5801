package ops

import (
	"math"
	"math/bits"
)

// philox is the generator Philox 4x32 with 10 rounds, as TensorFlow uses it: the same seeds give the
// same values (random_distributions.h, philox_random.h).
type philox struct {
	counter [4]uint32
	key     [2]uint32
}

// newPhilox returns the generator of a node with the attributes seed and seed2.
func newPhilox(seed, seed2 uint64) philox {
	return philox{
		counter: [4]uint32{2: uint32(seed2), 3: uint32(seed2 >> 32)},
		key:     [2]uint32{uint32(seed), uint32(seed >> 32)},
	}
}

// skip moves the generator by n groups of four numbers.
func (p *philox) skip(n uint64) {
	c := &p.counter
	var carry uint64
	lo, carry := bits.Add64(uint64(c[0])|uint64(c[1])<<32, n, 0)
	hi, _ := bits.Add64(uint64(c[2])|uint64(c[3])<<32, 0, carry)
	*c = [4]uint32{uint32(lo), uint32(lo >> 32), uint32(hi), uint32(hi >> 32)}
}

// next returns four numbers and moves on by one group.
func (p *philox) next() [4]uint32 {
	const (
		m0, m1 = 0xd2511f53, 0xcd9e8d57
		w0, w1 = 0x9e3779b9, 0xbb67ae85
		rounds = 10
	)
	x, k := p.counter, p.key
	for range rounds {
		a, b := uint64(x[0])*m0, uint64(x[2])*m1
		x = [4]uint32{uint32(b>>32) ^ x[1] ^ k[0], uint32(b), uint32(a>>32) ^ x[3] ^ k[1], uint32(a)}
		k[0] += w0
		k[1] += w1
	}
	p.skip(1)
	return x
}

// single gives the numbers of a philox one by one.
type single struct {
	gen   *philox
	group [4]uint32
	used  int
}

func newSingle(gen *philox) *single { return &single{gen: gen, used: 4} }

func (s *single) next() uint32 {
	if s.used == len(s.group) {
		s.group, s.used = s.gen.next(), 0
	}
	s.used++
	return s.group[s.used-1]
}

// uniform32 returns a number in [0, 1) from the low 23 bits.
func uniform32(x uint32) float32 { return math.Float32frombits(127<<23|x&0x7fffff) - 1 }

// uniform64 returns a number in [0, 1) from the low 20 bits of hi and all of lo.
func uniform64(hi, lo uint32) float64 {
	return math.Float64frombits(1023<<52|uint64(hi&0xfffff)<<32|uint64(lo)) - 1
}

// epsilon is the least argument of the logarithm below.
const epsilon = 1e-7

// normal32 returns two numbers of the normal distribution, by Box and Muller.
func normal32(x0, x1 uint32) (float32, float32) {
	u1 := max(uniform32(x0), float32(epsilon))
	v1 := float32(2 * math.Pi * float64(uniform32(x1)))
	u2 := sqrt(-2 * logFloat(u1))
	sin, cos := sincosFloat(v1)
	return sin * u2, cos * u2
}

// normal64 is normal32 in double.
func normal64(x0, x1, x2, x3 uint32) (float64, float64) {
	u1 := max(uniform64(x0, x1), epsilon)
	v1 := 2 * math.Pi * uniform64(x2, x3)
	u2 := math.Sqrt(-2 * math.Log(u1))
	sin, cos := math.Sincos(v1)
	return sin * u2, cos * u2
}
