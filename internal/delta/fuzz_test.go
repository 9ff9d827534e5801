package delta

import (
	"bytes"
	"testing"
)

// FuzzApply applies any bytes as a delta. It must end, and write to the tensor alone; and the same
// bytes in parts give the same.
func FuzzApply(f *testing.F) {
	old := random(seeded(6), blockBytes+200) // two blocks
	e := newEncoder(f)
	p := pairOf(old, change(seeded(7), old, 2, 0.0005, ulps), 2)
	good, _ := e.Encode(nil, p, 0)
	f.Add(good, uint16(7))
	zip := e.zstd.EncodeAll(bytes.Repeat([]byte{1, 0}, 100), nil)
	f.Add(framed(p, []byte{blockEqual, 1}, payload(blockXOR, zip)), uint16(1000))
	f.Add(framed(p, []byte{blockEqual, 1, blockRaw}, old[:200]), uint16(1))
	f.Add(framed(p, []byte{blockEqual, 2}), uint16(3))
	a := newApplier(f)
	f.Fuzz(func(t *testing.T, delta []byte, part uint16) {
		to, g := target(p, true)
		to.Hash = nil
		err := a.Apply(to, delta)
		g.check(t)
		inParts, g2 := target(p, true)
		inParts.Hash = nil
		a.Reset(inParts)
		for rest := delta; len(rest) > 0; {
			n := min(len(rest), 1+int(part))
			if _, err := a.Write(rest[:n]); err != nil {
				break
			}
			rest = rest[n:]
		}
		if again := a.Close(); (again == nil) != (err == nil) || err == nil && !bytes.Equal(to.Dst, inParts.Dst) {
			t.Fatalf("at once: %v; in parts of %d: %v", err, int(part)+1, again)
		}
		g2.check(t)
	})
}

// fuzzBlock fuzzes the payload of one block of a kind, over elements of each length.
func fuzzBlock(f *testing.F, kind byte, share float64) {
	a, e := newApplier(f), newEncoder(f)
	old := random(seeded(9), 4096)
	for shift := range 4 {
		p := pairOf(old, change(seeded(10), old, 1<<shift, share, anyBits), 1<<shift)
		delta, _ := e.Encode(nil, p, 0)
		if head := len(framed(p)); len(delta) > head+3 {
			f.Add(delta[head+3:], byte(shift))
		}
	}
	f.Fuzz(func(t *testing.T, b []byte, shift byte) {
		p := pairOf(old, old, 1<<(shift%4))
		to, g := target(p, false)
		to.Hash = nil
		_ = a.Apply(to, framed(p, payload(kind, b)))
		g.check(t)
		if !bytes.Equal(to.Base, old) {
			t.Fatal("the base was written")
		}
	})
}

func FuzzSparse(f *testing.F) { fuzzBlock(f, blockSparse, 0.1) }

func FuzzXOR(f *testing.F) {
	e := newEncoder(f)
	f.Add(e.zstd.EncodeAll(bytes.Repeat([]byte{1, 0}, 2048), nil), byte(1))
	f.Add(endless(3), byte(0))
	fuzzBlock(f, blockXOR, 1)
}

// FuzzRoundTrip encodes any two versions, and applies what came out.
func FuzzRoundTrip(f *testing.F) {
	f.Add([]byte("the old version"), []byte("the new version"), byte(0))
	f.Add(make([]byte, 5000), bytes.Repeat([]byte{0, 1, 0, 0}, 1250), byte(1))
	f.Add(random(seeded(11), 999), random(seeded(12), 999), byte(3))
	e, a := newEncoder(f), newApplier(f)
	f.Fuzz(func(t *testing.T, old, new []byte, shift byte) {
		n := min(len(old), len(new))
		roundTrip(t, e, a, pairOf(old[:n], new[:n], 1<<(shift%4)))
	})
}

// FuzzGaps writes and reads any gaps with any number of low bits.
func FuzzGaps(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3}, byte(0))
	f.Add([]byte{255, 255, 255, 0, 0, 1}, byte(3))
	f.Fuzz(func(t *testing.T, b []byte, k byte) {
		var gaps []uint32
		for ; len(b) >= 3; b = b[3:] {
			gaps = append(gaps, (uint32(b[0])|uint32(b[1])<<8|uint32(b[2])<<16)%(1<<gapBits))
		}
		var w bitWriter
		low := uint(k) % gapBits
		for _, g := range gaps {
			w.writeGap(g, low)
			w.writeLong(uint64(g)<<40|uint64(g), 60)
		}
		r := bitReader{in: w.close()}
		for i, g := range gaps {
			if got := r.readGap(low); got != g {
				t.Fatalf("gap %d is %d, want %d", i, got, g)
			}
			if got := r.readLong(60); got != (uint64(g)<<40|uint64(g))&(1<<60-1) {
				t.Fatalf("value %d is %x", i, got)
			}
		}
		if !r.ended() {
			t.Fatal("bits are left")
		}
	})
}
