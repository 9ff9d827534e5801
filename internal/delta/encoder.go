package delta

import (
	"bytes"
	"encoding/binary"
	"slices"

	"github.com/klauspost/compress/zstd"

	"github.com/tryst-rdma/tryst/status"
)

// Method is how a tensor gets from one version to the next.
type Method uint8

// The methods, in the order of preference when two take the same time.
const (
	Whole   Method = iota // all bytes of the new version, without a delta
	Nothing               // a delta without a change
	Sparse                // a delta mostly of changed elements
	XOR                   // a delta mostly of XORed bytes, compressed with zstd
)

func (m Method) String() string {
	return [...]string{"whole", "nothing", "sparse", "xor"}[m]
}

// The kinds of blocks (PROTOCOL.md section 13.1).
const (
	blockEqual = iota
	blockSparse
	blockXOR
	blockRaw
)

// Pair is a tensor in two versions: its elements in row-major order, little-endian, and their
// digests, which are opaque here, of at most 64 bytes each.
type Pair struct {
	Old, New     []byte
	Base, Result []byte
	Unit         int // see Unit
}

// Encoder makes deltas, one after the other. It keeps its scratch memory of up to 5 MiB from one to
// the next. It is not safe for concurrent use.
type Encoder struct {
	// Limit is how long a delta may be, in bytes; a longer one is not made. 0 means no limit.
	Limit int64
	// Stop, if not nil, is called between two blocks. When it returns true, no delta is made.
	Stop func() bool

	zstd    *zstd.Encoder
	changes changes
	payload []byte
	planes  []byte
	zipped  []byte
}

// NewEncoder returns an Encoder.
func NewEncoder() (*Encoder, error) {
	z, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(false), zstd.WithWindowSize(blockBytes),
		zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithAllLitEntropyCompression(true), zstd.WithLowerEncoderMem(true))
	if err != nil {
		return nil, status.Errorf(status.Internal, "delta: zstd: %w", err)
	}
	return &Encoder{zstd: z}, nil
}

// encoding is a delta that is being made.
type encoding struct {
	*Encoder
	Pair
	out    []byte
	equal  int // blocks that are equal and not in out yet
	sparse int // bytes of sparse blocks
	other  int // bytes of XOR and raw blocks
	made   Summary

	wasDense bool // the block before
}

// Encode appends the delta from p.Old to p.New to out. Its method is Whole, and out as it was, when
// the whole tensor arrives earlier over a route of rate bytes a second (see Sample.Choose), when
// its length changed, and as Limit and Stop say. With the rate 0 the bytes alone count.
func (e *Encoder) Encode(out []byte, p Pair, rate float64) ([]byte, Summary) {
	whole := Summary{Length: int64(len(p.New)), Bytes: int64(len(p.New))}
	if len(p.Old) != len(p.New) || len(p.Base) > maxDigest || len(p.Result) > maxDigest {
		return out, whole
	}
	if !validUnit(p.Unit) || len(p.New)%p.Unit != 0 {
		p.Unit = 1
	}
	h := header{unit: p.Unit, length: whole.Length, base: p.Base, result: p.Result}
	d := encoding{Encoder: e, Pair: p, out: h.append(out), made: Summary{Length: whole.Length}}
	if len(p.Base) > 0 && bytes.Equal(p.Base, p.Result) {
		d.equal = blocks(len(p.New))
	} else if !Pays(whole.Length, rate) || Look(p.Old, p.New, p.Unit).Choose(rate) == Whole || !d.encode(len(out)) {
		return out, whole
	}
	d.flush()
	d.made.Bytes = int64(len(d.out) - len(out))
	d.made.Method = d.method()
	return d.out, d.made
}

// encode appends the blocks. It returns false when they take too many bytes.
func (d *encoding) encode(start int) bool {
	limit := int(gains(d.made.Length))
	if d.Limit > 0 {
		limit = int(min(gains(d.made.Length), d.Limit))
	}
	for i := 0; i < len(d.New); i += blockBytes {
		if d.Stop != nil && d.Stop() {
			return false
		}
		end := min(i+blockBytes, len(d.New))
		d.block(d.Old[i:end], d.New[i:end])
		if len(d.out)-start > limit {
			return false
		}
	}
	return true
}

// blocks is how many blocks a tensor of n bytes has.
func blocks(n int) int { return (n + blockBytes - 1) / blockBytes }

// block appends one block.
func (d *encoding) block(old, new []byte) {
	probe := min(len(new), probeBytes)
	switch {
	case d.wasDense && !d.few(old[:probe], new[:probe]), !d.few(old, new):
		d.dense(old, new)
		d.wasDense = true
		return
	case len(d.changes.gaps) == 0:
		d.equal++
	default:
		d.payload = d.appendSparse(d.payload[:0], &d.changes)
		d.made.Changes += int64(len(d.changes.gaps))
		d.add(blockSparse, d.payload, new)
	}
	d.wasDense = false
}

// few finds the changes. It returns false when they are too many for a sparse block.
func (d *encoding) few(old, new []byte) bool {
	return d.changes.find(old, new, d.Unit, len(new)/d.Unit/maxDense)
}

// dense appends a block as XOR, or as it is.
func (d *encoding) dense(old, new []byte) {
	d.planes = slices.Grow(d.planes[:0], len(new))[:len(new)]
	xorPlanes(d.planes, old, new, d.Unit)
	if compresses(d.planes, d.Unit) {
		d.zipped = d.zstd.EncodeAll(d.planes, d.zipped[:0])
		d.made.Dense += int64(len(new))
		d.add(blockXOR, d.zipped, new)
		return
	}
	d.add(blockRaw, nil, new)
}

// add appends a block of a kind other than equal: as raw, where the payload gains too little.
func (d *encoding) add(kind byte, payload, new []byte) {
	d.flush()
	if kind == blockRaw || len(payload) > int(gains(int64(len(new)))) {
		d.out = append(append(d.out, blockRaw), new...)
		d.other += len(new)
		return
	}
	d.out = binary.AppendUvarint(append(d.out, kind), uint64(len(payload)))
	d.out = append(d.out, payload...)
	if kind == blockSparse {
		d.sparse += len(payload)
	} else {
		d.other += len(payload)
	}
}

// method is what most bytes of the delta are.
func (d *encoding) method() Method {
	switch {
	case d.sparse+d.other == 0:
		return Nothing
	case d.sparse >= d.other:
		return Sparse
	}
	return XOR
}

// flush appends the blocks that are equal.
func (d *encoding) flush() {
	if d.equal > 0 {
		d.out = binary.AppendUvarint(append(d.out, blockEqual), uint64(d.equal))
		d.equal = 0
	}
}
