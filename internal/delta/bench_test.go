package delta

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/cespare/xxhash/v2"
	"github.com/klauspost/compress/zstd"
)

// benchPair is a tensor of 32 MiB of bf16, larger than a cache, in two versions.
func benchPair(share float64, value func(*rand.Rand) uint64) Pair {
	old := random(seeded(40), 32<<20)
	return pairOf(old, change(seeded(41), old, 2, share, value), 2)
}

// benchCases are the changes that are measured.
var benchCases = []struct {
	name  string
	share float64
	value func(*rand.Rand) uint64
}{{"one", 1e-7, ulps}, {"share=0.001", 0.001, ulps}, {"share=0.01", 0.01, ulps}, {"share=0.01,random", 0.01, sixteen}, {"share=0.03", 0.03, ulps}, {"share=0.3", 0.3, ulps}, {"share=1", 1, ulps}, {"share=1,random", 1, sixteen}}

func BenchmarkEncode(b *testing.B) {
	for _, c := range benchCases {
		b.Run(c.name, func(b *testing.B) {
			p, e := benchPair(c.share, c.value), newEncoder(b)
			b.SetBytes(int64(len(p.New)))
			out, made := e.Encode(nil, p, 0)
			for b.Loop() {
				out, made = e.Encode(out[:0], p, 0)
			}
			b.ReportMetric(float64(made.Bytes)/float64(made.Length), "share")
		})
	}
}

func BenchmarkApply(b *testing.B) {
	for _, c := range benchCases {
		p, e := benchPair(c.share, c.value), newEncoder(b)
		delta, made := e.Encode(nil, p, 0)
		if made.Method == Whole {
			continue
		}
		for _, way := range []string{"inplace", "beside", "beside,xxh64"} {
			b.Run(c.name+"/"+way, func(b *testing.B) {
				a := newApplier(b)
				to, _ := target(p, way == "inplace")
				if way != "beside,xxh64" {
					to.Hash = nil
				}
				b.SetBytes(int64(len(p.New)))
				for b.Loop() {
					if err := a.Apply(to, delta); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkLook is what is lost when nothing is gained.
func BenchmarkLook(b *testing.B) {
	p := benchPair(1, sixteen)
	b.SetBytes(int64(len(p.New)))
	for b.Loop() {
		Look(p.Old, p.New, p.Unit)
	}
}

// BenchmarkLevels compares levels of zstd on the byte planes of a dense XOR, and on the XOR as it is.
func BenchmarkLevels(b *testing.B) {
	p := benchPair(1, ulps)
	xor := make([]byte, blockBytes)
	for _, unit := range []int{1, 2} {
		for _, level := range []zstd.EncoderLevel{zstd.SpeedFastest, zstd.SpeedDefault, zstd.SpeedBetterCompression} {
			b.Run(fmt.Sprintf("planes=%d/%v", unit, level), func(b *testing.B) {
				z, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(false), zstd.WithWindowSize(blockBytes),
					zstd.WithEncoderLevel(level), zstd.WithAllLitEntropyCompression(true))
				if err != nil {
					b.Fatal(err)
				}
				xorPlanes(xor, p.Old[:blockBytes], p.New[:blockBytes], unit)
				b.SetBytes(blockBytes)
				var out []byte
				for b.Loop() {
					out = z.EncodeAll(xor, out[:0])
				}
				b.ReportMetric(float64(len(out))/blockBytes, "share")
			})
		}
	}
}

// BenchmarkDigest is the digest alone, for comparison.
func BenchmarkDigest(b *testing.B) {
	old := random(seeded(42), 32<<20)
	b.SetBytes(int64(len(old)))
	for b.Loop() {
		xxhash.Sum64(old)
	}
}
