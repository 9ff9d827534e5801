package checkpoint

import (
	"hash"
	"slices"
	"sync"
	"testing"
)

// TestPiecesInOrderAreNotReadAgain: a piece that comes next is hashed from memory. What came too early
// is read from its place when the gap before it is filled.
func TestPiecesInOrderAreNotReadAgain(t *testing.T) {
	content := []byte("0123456789")
	newHash := newHashOf(t, XXH64)
	h := newHash()
	_, _ = h.Write(content)
	pl := pulling(XXH64, newHash, h.Sum(nil))
	e := &TensorInfo{Name: "x", Bytes: 10, Digest: h.Sum(nil)}
	for _, test := range []struct {
		come, placed []int64 // the order in which pieces of 2 come, and in which they are in their places
		read         []piece
	}{
		{[]int64{0, 2, 4, 6, 8}, []int64{0, 2, 4, 6, 8}, nil},
		{[]int64{0, 2, 4, 6, 8}, []int64{4, 0, 8, 2, 6}, nil},
		{[]int64{2, 0, 4, 8, 6}, []int64{2, 0, 4, 8, 6}, []piece{{8, 2}}},
		{[]int64{8, 6, 4, 2, 0}, []int64{0, 2, 4, 6, 8}, nil},
		{[]int64{8, 6, 4, 2, 0}, []int64{8, 6, 4, 2, 0}, []piece{{4, 6}}},
	} {
		var a assembly
		var read []piece
		for _, off := range test.come {
			pl.ahead(&a, piece{off, 2}, content[off:off+2])
		}
		made := incomplete
		for _, off := range test.placed {
			var err error
			made, err = pl.add(&a, e, piece{off, 2}, content[off:off+2], func(h hash.Hash, p piece) error {
				read = append(read, p)
				_, err := h.Write(content[p.off:p.end()])
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		if made != complete || !slices.Equal(read, test.read) {
			t.Errorf("pieces come as %v and are placed as %v: outcome %d, read again %v, want %v", test.come, test.placed, made, read, test.read)
		}
	}
}

// TestPiecesComeAtOnce: whatever the goroutines of the pieces do in between, one of them completes the
// tensor with the right digest.
func TestPiecesComeAtOnce(t *testing.T) {
	const size, n = 1 << 10, 64
	content := make([]byte, size*n)
	for i := range content {
		content[i] = byte(i * 7)
	}
	newHash := newHashOf(t, XXH64)
	h := newHash()
	_, _ = h.Write(content)
	pl := pulling(XXH64, newHash, h.Sum(nil))
	e := &TensorInfo{Name: "x", Bytes: size * n, Digest: h.Sum(nil)}
	for range 20 {
		var a assembly
		var all sync.WaitGroup
		outcomes := make(chan outcome, n)
		for i := range int64(n) {
			all.Go(func() {
				p := piece{i * size, size}
				pl.ahead(&a, p, content[p.off:p.end()])
				made, err := pl.add(&a, e, p, content[p.off:p.end()], func(h hash.Hash, p piece) error {
					_, err := h.Write(content[p.off:p.end()])
					return err
				})
				if err != nil {
					t.Error(err)
				}
				outcomes <- made
			})
		}
		all.Wait()
		close(outcomes)
		completed := 0
		for made := range outcomes {
			if made == complete {
				completed++
			} else if made != incomplete {
				t.Errorf("outcome %d", made)
			}
		}
		if completed != 1 {
			t.Fatalf("the tensor was completed %d times", completed)
		}
	}
}
