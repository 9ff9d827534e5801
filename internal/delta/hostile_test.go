package delta

import (
	"bytes"
	"encoding/binary"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/tryst-rdma/tryst/status"
)

// hostilePair is the pair of the hostile deltas: two blocks and a bit of 2-byte elements.
func hostilePair() Pair {
	old := random(seeded(6), 2*blockBytes+100)
	return pairOf(old, change(seeded(7), old, 2, 0.01, ulps), 2)
}

// framed returns a delta for p with the given blocks.
func framed(p Pair, blocks ...[]byte) []byte {
	h := header{unit: p.Unit, length: int64(len(p.New)), base: p.Base, result: p.Result}
	return append(h.append(nil), slices.Concat(blocks...)...)
}

// payload returns a block of a kind with a payload.
func payload(kind byte, b []byte) []byte {
	return append(binary.AppendUvarint([]byte{kind}, uint64(len(b))), b...)
}

// zipped returns a zstd frame of n zeros.
func zipped(t testing.TB, n int) []byte {
	z, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	if err != nil {
		t.Fatal(err)
	}
	return z.EncodeAll(make([]byte, n), nil)
}

// endless is a zstd frame without a content size, whose blocks repeat a byte 2^17 times each.
func endless(blocks int) []byte {
	b := []byte{0x28, 0xb5, 0x2f, 0xfd, 0, 0x50} // magic, no content size, a window of 1 MiB
	for range blocks {
		b = append(b, 0x02, 0x00, 0x10, 'x') // not last, RLE, 1<<17 bytes
	}
	return append(b, 1, 0, 0) // last, raw, empty
}

// gapsOf encodes gaps with 6 low bits.
func gapsOf(gaps ...uint32) []byte {
	var w bitWriter
	for _, g := range gaps {
		w.writeGap(g, 6)
	}
	return w.close()
}

// oneBit begins a sparse block of n changes of the lowest bit, all 1.
func oneBit(n int, gaps []byte) []byte {
	b := append(binary.AppendUvarint(nil, uint64(n)), 6, 0, 1)
	var w bitWriter
	for range n {
		w.write(1, 1)
	}
	return append(append(b, w.close()...), gaps...)
}

func TestHostileDeltasEndWithAClearError(t *testing.T) {
	p := hostilePair()
	good, _ := newEncoder(t).Encode(nil, p, 0)
	head := len(framed(p))
	with := func(at int, b byte) []byte { c := slices.Clone(good); c[at] = b; return c }
	for name, tt := range map[string]struct {
		delta []byte
		want  string
	}{
		"empty":                           {nil, "it is cut"},
		"cut in the header":               {good[:5], "it is cut"},
		"cut after the header":            {good[:head], "it is cut"},
		"cut in a block":                  {good[:len(good)/2], "it is cut"},
		"cut by a byte":                   {good[:len(good)-1], "it is cut"},
		"a byte more":                     {append(slices.Clone(good), 0), "bytes follow"},
		"another version":                 {with(0, 9), "its version is 9"},
		"another unit":                    {with(1, 3), "its elements have 3 bytes"},
		"a terabyte":                      {(&header{unit: 1, length: 1 << 40, base: p.Base, result: p.Result}).append(nil), "of a tensor of 1099511627776 bytes"},
		"half an element":                 {(&header{unit: 8, length: int64(len(p.New))}).append(nil), "elements of 8"},
		"a number without end":            {append([]byte{version, 2}, bytes.Repeat([]byte{0xff}, 20)...), "more than 64 bits"},
		"a negative length":               {binary.AppendUvarint([]byte{version, 2}, 1<<63), "has 9223372036854775808 bytes"},
		"a long digest":                   {[]byte{version, 2, 100, 65}, "a digest has 65 bytes"},
		"an unknown block":                {framed(p, []byte{4}), "a block of kind 4"},
		"no equal blocks":                 {framed(p, []byte{blockEqual, 0}), "0 blocks are equal, of 3"},
		"too many equal blocks":           {framed(p, binary.AppendUvarint([]byte{blockEqual}, 1<<60)), "1152921504606846976 blocks are equal, of 3"},
		"a block longer than itself":      {framed(p, binary.AppendUvarint([]byte{blockXOR}, 1<<40)), "a block has 1099511627776 bytes"},
		"no changes":                      {framed(p, payload(blockSparse, oneBit(0, nil))), "changes 0 of"},
		"more changes than elements":      {framed(p, payload(blockSparse, append(binary.AppendUvarint(nil, 1<<50), 6, 0, 1))), "changes 1125899906842624 of 131072"},
		"a cut sparse block":              {framed(p, payload(blockSparse, []byte{1, 6})), "is cut"},
		"values cut":                      {framed(p, payload(blockSparse, []byte{100, 6, 0, 16, 1, 2, 3})), "cut in its values"},
		"values beyond an element":        {framed(p, payload(blockSparse, []byte{1, 6, 12, 5, 1, 1})), "values of 5 bits above 12"},
		"values without bits":             {framed(p, payload(blockSparse, []byte{1, 6, 0, 0, 1})), "values of 0 bits"},
		"long gaps":                       {framed(p, payload(blockSparse, []byte{1, gapBits, 0, 1, 1, 1})), "gaps of 18 bits"},
		"a position beyond the end":       {framed(p, payload(blockSparse, oneBit(2, gapsOf(5, 131066)))), "changes element 131072 of 131072"},
		"no positions":                    {framed(p, payload(blockSparse, oneBit(3, nil))), "other bytes than they take"},
		"more positions":                  {framed(p, payload(blockSparse, oneBit(1, gapsOf(1, 1, 1, 1)))), "other bytes than they take"},
		"padding that is not 0":           {framed(p, payload(blockSparse, []byte{1, 6, 0, 1, 3, 1})), "other bytes than they take"},
		"zipped values of another length": {framed(p, payload(blockSparse, append([]byte{9, 6 | zippedFlag, 0, 8, byte(len(zipped(t, 8)))}, zipped(t, 8)...))), "expands to 8 bytes, not 9"},
		"zipped values cut":               {framed(p, payload(blockSparse, []byte{9, 6 | zippedFlag, 0, 8, 200})), "cut in its values"},
		"no zstd":                         {framed(p, payload(blockXOR, []byte("plain text"))), "no zstd frame"},
		"an XOR that is too short":        {framed(p, payload(blockXOR, zipped(t, 1000))), "expands to 1000 bytes, not 262144"},
		"an XOR that is too long":         {framed(p, payload(blockXOR, zipped(t, blockBytes+1))), "no zstd frame of 262144 bytes"},
		"an XOR without end":              {framed(p, payload(blockXOR, endless(50_000))), "no zstd frame of 262144 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, inPlace := range []bool{true, false} {
				to, g := target(p, inPlace)
				a := newApplier(t)
				err := a.Apply(to, tt.delta)
				if err == nil || !strings.Contains(err.Error(), tt.want) || status.CodeOf(err) != status.DataLoss {
					t.Errorf("in place %v: the error is %v, want DataLoss with %q", inPlace, err, tt.want)
				}
				if _, again := a.Write([]byte{1}); again == nil {
					t.Error("bytes after the error are taken")
				}
				g.check(t)
			}
		})
	}
}

func TestWrongBaseIsRefusedBeforeAnythingIsWritten(t *testing.T) {
	p := hostilePair()
	delta, _ := newEncoder(t).Encode(nil, p, 0)
	for name, wrong := range map[string]func(*Target){
		"base":    func(to *Target) { to.BaseDigest = digest([]byte("another")) },
		"version": func(to *Target) { to.Digest = digest([]byte("another")) },
		"length":  func(to *Target) { to.Base = to.Base[:100] },
	} {
		to, _ := target(p, true)
		wrong(&to)
		if err := newApplier(t).Apply(to, delta); status.CodeOf(err) != status.FailedPrecondition {
			t.Errorf("another %s: %v", name, err)
		}
		if !bytes.Equal(to.Dst, p.Old) {
			t.Errorf("another %s: the tensor was written", name)
		}
	}
}

func TestDigestIsCheckedAfterTheDelta(t *testing.T) {
	p := hostilePair()
	delta, _ := newEncoder(t).Encode(nil, p, 0)
	to, _ := target(p, true)
	to.Base[len(to.Base)-1]++ // the base is not what its digest says
	if err := newApplier(t).Apply(to, delta); status.CodeOf(err) != status.DataLoss || !strings.Contains(err.Error(), "the tensor has the digest") {
		t.Errorf("a base that was changed: %v", err)
	}
	to.Hash = nil
	copy(to.Dst, p.Old)
	if err := newApplier(t).Apply(to, delta); err != nil || !bytes.Equal(to.Dst, p.New) {
		t.Errorf("without a hash: %v", err)
	}
}

func TestHostileDeltasTakeBoundedMemory(t *testing.T) {
	p := hostilePair()
	a := newApplier(t)
	to, _ := target(p, true)
	_ = a.Apply(to, framed(p, payload(blockXOR, zipped(t, blockBytes)))) // its scratch memory
	var before, after runtime.MemStats
	for name, delta := range map[string][]byte{
		"XOR without end": framed(p, payload(blockXOR, endless(60_000))),
		"long block":      append(framed(p, binary.AppendUvarint([]byte{blockXOR}, blockBytes)), make([]byte, 100)...),
		"large window":    framed(p, payload(blockXOR, []byte{0x28, 0xb5, 0x2f, 0xfd, 0, 0xff, 3, 0, 0, 1})),
	} {
		runtime.ReadMemStats(&before)
		if err := a.Apply(to, delta); err == nil {
			t.Errorf("%s: no error", name)
		}
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n > 4<<20 {
			t.Errorf("%s: %d bytes were allocated", name, n)
		}
	}
}

func TestApplierWorksAfterAnError(t *testing.T) {
	p := hostilePair()
	delta, _ := newEncoder(t).Encode(nil, p, 0)
	a := newApplier(t)
	to, _ := target(p, false)
	if err := a.Apply(to, delta[:len(delta)-1]); err == nil {
		t.Fatal("a cut delta was taken")
	}
	if err := a.Apply(to, delta); err != nil || !bytes.Equal(to.Dst, p.New) {
		t.Errorf("after a cut delta: %v", err)
	}
}

func TestApplierWithoutATargetRefuses(t *testing.T) {
	if _, err := newApplier(t).Write([]byte{version}); status.CodeOf(err) != status.FailedPrecondition {
		t.Errorf("bytes without a target: %v", err)
	}
}
