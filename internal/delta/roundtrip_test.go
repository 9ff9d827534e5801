package delta

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// roundTrip encodes and applies a pair, in place and beside the base.
func roundTrip(t testing.TB, e *Encoder, a *Applier, p Pair) Summary {
	t.Helper()
	delta, made := e.Encode(nil, p, 0)
	if made.Method == Whole {
		if len(delta) != 0 || made.Bytes != int64(len(p.New)) {
			t.Fatalf("the whole has a delta of %d bytes, and %d bytes", len(delta), made.Bytes)
		}
		return made
	}
	if made.Bytes != int64(len(delta)) || made.Length != int64(len(p.New)) {
		t.Fatalf("the summary %+v is of a delta of %d bytes", made, len(delta))
	}
	for _, inPlace := range []bool{true, false} {
		to, g := target(p, inPlace)
		if err := a.Apply(to, delta); err != nil {
			t.Fatalf("in place %v: %v", inPlace, err)
		}
		if !bytes.Equal(to.Dst, p.New) {
			t.Fatalf("in place %v: another tensor came out", inPlace)
		}
		if !inPlace && !bytes.Equal(to.Base, p.Old) {
			t.Fatal("the base was changed")
		}
		g.check(t)
	}
	return made
}

func TestRoundTrip(t *testing.T) {
	e, a := newEncoder(t), newApplier(t)
	kinds := map[string]func(*rand.Rand) uint64{"low bits": lowBits, "ulps": ulps, "any": anyBits}
	for _, unit := range []int{1, 2, 4, 8} {
		for name, value := range kinds {
			for _, p := range []float64{0, 0.0005, 0.01, 0.2, 0.6, 1} {
				for _, n := range []int{0, 1, 3, 5, 33, 1000, blockBytes/8 - 1, blockBytes / 8, 2*blockBytes/8 + 7} {
					t.Run(fmt.Sprintf("%d/%s/%v/%d", unit, name, p, n), func(t *testing.T) {
						r := seeded(uint64(n))
						old := random(r, n*unit)
						roundTrip(t, e, a, pairOf(old, change(r, old, unit, p, value), unit))
					})
				}
			}
		}
	}
}

func TestEachMethodIsTaken(t *testing.T) {
	e, a := newEncoder(t), newApplier(t)
	r := seeded(1)
	old := random(r, 3*blockBytes+20)
	for want, new := range map[Method][]byte{
		Nothing: slices.Clone(old),
		Sparse:  change(r, old, 2, 0.01, sixteen),
		XOR:     change(r, old, 2, 1, lowBits),
		Whole:   change(r, old, 2, 1, sixteen),
	} {
		if made := roundTrip(t, e, a, pairOf(old, new, 2)); made.Method != want {
			t.Errorf("the method is %v with %d of %d bytes, want %v", made.Method, made.Bytes, made.Length, want)
		}
	}
}

func TestBlocksOfOneTensorHaveTheirOwnEncodings(t *testing.T) {
	r := seeded(2)
	old := random(r, 8*blockBytes)
	new := slices.Clone(old)
	copy(new[blockBytes:], change(r, old[blockBytes:2*blockBytes], 4, 0.01, anyBits))
	copy(new[4*blockBytes:], change(r, old[4*blockBytes:5*blockBytes], 4, 1, lowBits))
	copy(new[5*blockBytes:], random(r, blockBytes))
	made := roundTrip(t, newEncoder(t), newApplier(t), pairOf(old, new, 4))
	if made.Bytes < blockBytes || made.Bytes > 3*blockBytes/2 || made.Dense != blockBytes || made.Changes == 0 {
		t.Errorf("a delta with a raw, an XOR and a sparse block: %+v", made)
	}
}

func TestTheSameDigestNeedsNoLook(t *testing.T) {
	p := pairOf(make([]byte, 5*blockBytes), make([]byte, 5*blockBytes), 2)
	p.New[7] = 1 // which the digests deny, so nothing reads it
	delta, made := newEncoder(t).Encode(nil, p, 1e12)
	if made.Method != Nothing || len(delta) > 40 {
		t.Errorf("an unchanged tensor takes %v and %d bytes", made.Method, len(delta))
	}
}

func TestOtherLengthTakesTheWhole(t *testing.T) {
	p := pairOf(make([]byte, 1000), make([]byte, 1002), 2)
	if delta, made := newEncoder(t).Encode([]byte("before"), p, 0); made.Method != Whole || string(delta) != "before" || made.Bytes != 1002 {
		t.Errorf("a tensor of another length has the summary %+v and the delta %q", made, delta)
	}
}

func TestPartsOfAnyLength(t *testing.T) {
	e, a := newEncoder(t), newApplier(t)
	r := seeded(3)
	old := random(r, 4*blockBytes+6)
	new := slices.Clone(old)
	copy(new, change(r, old[:blockBytes], 2, 0.02, ulps))
	copy(new[2*blockBytes:], change(r, old[2*blockBytes:3*blockBytes], 2, 1, lowBits))
	copy(new[3*blockBytes:], random(r, blockBytes/2))
	p := pairOf(old, new, 2)
	delta, _ := e.Encode(nil, p, 0)
	for _, most := range []int{1, 2, 100, 70_000, len(delta)} {
		to, g := target(p, most%2 == 0)
		a.Reset(to)
		for rest := delta; len(rest) > 0; {
			n := min(len(rest), 1+r.IntN(most))
			if _, err := a.Write(slices.Clone(rest[:n])); err != nil {
				t.Fatalf("parts of up to %d bytes: %v", most, err)
			}
			rest = rest[n:]
		}
		if err := a.Close(); err != nil || !bytes.Equal(to.Dst, new) {
			t.Errorf("parts of up to %d bytes: %v", most, err)
		}
		g.check(t)
	}
}

func TestUnitOfElements(t *testing.T) {
	for size, want := range map[int]int{-1: 1, 0: 1, 1: 1, 2: 2, 3: 1, 4: 4, 6: 2, 8: 8, 12: 4, 16: 8} {
		if got := Unit(size); got != want {
			t.Errorf("Unit(%d) = %d, want %d", size, got, want)
		}
	}
	odd := pairOf(make([]byte, 1001), append(make([]byte, 1000), 1), 8) // packed, with a unit that does not divide it
	if made := roundTrip(t, newEncoder(t), newApplier(t), odd); made.Method != Sparse {
		t.Errorf("1001 bytes take %v", made.Method)
	}
}
