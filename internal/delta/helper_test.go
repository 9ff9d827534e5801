package delta

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cespare/xxhash/v2"
)

// seeded returns a source of the same numbers in each run.
func seeded(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(43, seed)) }

// random returns n bytes.
func random(r *rand.Rand, n int) []byte {
	b := make([]byte, n, n+8)
	for i := 0; i < n; i += 8 {
		b = binary.LittleEndian.AppendUint64(b[:i], r.Uint64())
	}
	return b[:n:n]
}

// change returns a copy of old in which each element is XORed with value with the probability p.
func change(r *rand.Rand, old []byte, unit int, p float64, value func(*rand.Rand) uint64) []byte {
	out := slices.Clone(old)
	for i := 0; i+unit <= len(out); i += unit {
		if r.Float64() < p {
			for j, v := 0, value(r); j < unit; j++ {
				out[i+j] ^= byte(v >> (8 * j))
			}
		}
	}
	return out
}

// How elements change.
func lowBits(r *rand.Rand) uint64     { return 1 + r.Uint64N(3) }     // one or both of the lowest two
func mantissaBit(r *rand.Rand) uint64 { return 1 << r.UintN(7) }      // one of the seven of bf16
func sixteen(r *rand.Rand) uint64     { return 1 + r.Uint64N(65535) } // of bf16
func anyBits(r *rand.Rand) uint64     { return r.Uint64() | 1 }

// ulps is the XOR with a number that is some steps larger: mostly 1, 3 or 7.
func ulps(r *rand.Rand) uint64 {
	v := uint64(1)
	for r.UintN(2) == 0 && v < 127 {
		v = v<<1 | 1
	}
	return v
}

// digest is the digest of publications, as 8 bytes, big-endian.
func digest(b []byte) []byte { return binary.BigEndian.AppendUint64(nil, xxhash.Sum64(b)) }

// pairOf returns two versions with their digests.
func pairOf(old, new []byte, unit int) Pair {
	return Pair{Old: old, New: new, Unit: unit, Base: digest(old), Result: digest(new)}
}

func newEncoder(t testing.TB) *Encoder {
	t.Helper()
	e, err := NewEncoder()
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func newApplier(t testing.TB) *Applier {
	t.Helper()
	a, err := NewApplier()
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// guarded is memory with bytes before and behind it that nothing may change.
type guarded struct{ all, dst []byte }

const guard = 64

func newGuarded(content []byte) guarded {
	all := slices.Repeat([]byte{0xa5}, len(content)+2*guard)
	copy(all[guard:], content)
	return guarded{all, all[guard : guard+len(content)]} // dst's capacity reaches over the bytes behind
}

func (g guarded) check(t testing.TB) {
	t.Helper()
	around := slices.Concat(g.all[:guard], g.all[len(g.all)-guard:])
	if i := slices.IndexFunc(around, func(b byte) bool { return b != 0xa5 }); i >= 0 {
		t.Fatalf("byte %d of the %d around the tensor was written", i, len(around))
	}
}

// target returns the target for a pair: in place, or beside the old version.
func target(p Pair, inPlace bool) (Target, guarded) {
	g := newGuarded(p.Old)
	t := Target{Dst: g.dst, Base: g.dst, BaseDigest: p.Base, Digest: p.Result, Hash: xxhash.New()}
	if !inPlace {
		t.Base = slices.Clone(p.Old)
		clear(t.Dst)
	}
	return t, g
}
