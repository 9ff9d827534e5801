package delta

import (
	"math/rand/v2"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// TestBytesBesideZstdAndTheWhole prints what a delta of bf16 takes when a share of the elements changed,
// spread evenly, and checks the goals for one in a hundred.
func TestBytesBesideZstdAndTheWhole(t *testing.T) {
	z, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.EncoderLevelFromZstd(1)))
	if err != nil {
		t.Fatal(err)
	}
	e, a := newEncoder(t), newApplier(t)
	size := 16 << 20
	if testing.Short() {
		size = 2 << 20
	}
	old := random(seeded(4), size)
	t.Logf("%-15s %8s %10s %10s %8s %8s  %s", "changed bits", "share", "delta", "zstd -1", "beside", "whole/", "method")
	for _, k := range []struct {
		name  string
		value func(*rand.Rand) uint64
		whole float64 // the goal beside the whole
	}{{"low two", lowBits, 1. / 50}, {"ulps", ulps, 1. / 50}, {"any of mantissa", mantissaBit, 1. / 50}, {"random 16", sixteen, 1. / 35}} {
		for _, share := range []float64{0.0001, 0.001, 0.01, 0.03, 0.1, 0.3, 1} {
			p := pairOf(old, change(seeded(5), old, 2, share, k.value), 2)
			made := roundTrip(t, e, a, p)
			xor := make([]byte, size)
			xorPlanes(xor, p.Old, p.New, 1)
			other := len(z.EncodeAll(xor, nil))
			beside := float64(made.Bytes) / float64(other)
			t.Logf("%-15s %8v %10d %10d %8.2f %8.1f  %v", k.name, share, made.Bytes, other, beside, float64(size)/float64(made.Bytes), made.Method)
			if share == 0.01 && (beside > 0.85 || float64(made.Bytes) > k.whole*float64(size)) {
				t.Errorf("%s: %d bytes are %.2f of zstd's and %.4f of the whole; the goals are 0.85 and %.4f", k.name, made.Bytes, beside, float64(made.Bytes)/float64(size), k.whole)
			}
			if float64(made.Bytes) > 1.001*float64(size) {
				t.Errorf("%s, share %v: the delta has %d bytes, more than the whole", k.name, share, made.Bytes)
			}
		}
	}
}
