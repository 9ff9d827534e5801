package checkpoint_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/tryst-rdma/tryst/internal/checkpoint"
	"github.com/tryst-rdma/tryst/tensor"
)

// largest is an allocator that notes its largest allocation.
type largest struct {
	tensor.Heap
	n atomic.Int64
}

func (l *largest) Allocate(n int) (*tensor.Buffer, error) {
	for old := l.n.Load(); int64(n) > old && !l.n.CompareAndSwap(old, int64(n)); old = l.n.Load() {
	}
	return l.Heap.Allocate(n)
}

// mirrorTwo mirrors two versions. between gets the path of the file of the first one before the second one comes. It returns
// the largest allocation for the second one, and how its tensors came.
func mirrorTwo(t *testing.T, first, second []*tensor.Tensor, between func(path string)) (int64, checkpoint.Deltas) {
	t.Helper()
	h := publisher(t)
	h.update(first, checkpoint.UpdateOptions{})
	memory := new(largest)
	p := h.dial(func(o *checkpoint.PullerOptions) { o.Allocator = memory })
	n, enough := 0, errors.New("enough")
	var deltas checkpoint.Deltas
	err := p.Mirror(t.Context(), checkpoint.PullRequest{Publication: "w"}, checkpoint.SaveOptions{Out: t.TempDir() + "/out/"},
		func(_ context.Context, m checkpoint.Mirrored) error {
			path := filepath.Join(m.Path, "w.safetensors")
			want := writeSafetensors(t, filepath.Join(t.TempDir(), "want.safetensors"), nil, [][]*tensor.Tensor{first, second}[n]...)
			if !bytes.Equal(readFile(t, path), readFile(t, want)) {
				t.Errorf("the file of version %d is wrong", n+1)
			}
			if n++; n == 2 {
				deltas = m.Summary.Deltas
				if m.Summary.Tensors != len(second) || m.Summary.Resumed != 0 {
					t.Errorf("the summary is %+v", m.Summary)
				}
				return enough
			}
			between(path)
			memory.n.Store(0)
			h.told(t, 1, 1)
			h.update(second, checkpoint.UpdateOptions{})
			return nil
		})
	if !errors.Is(err, enough) {
		t.Fatal(err)
	}
	return memory.n.Load(), deltas
}

func TestMirrorCopiesALargeTensorInPieces(t *testing.T) {
	first := bf16(t, 1, 5<<20+7, 1000)
	second := []*tensor.Tensor{first[0], bf16(t, 2, 1000)[0].Named(first[1].Name())}
	n, d := mirrorTwo(t, first, second, func(string) {})
	if n > 4<<20 || d.Nothing.Tensors != 1 || d.Whole.Tensors != 1 || d.Failed != 0 {
		t.Errorf("%d bytes were allocated at once; tensors came so: %+v", n, d)
	}
}

// The file of the version before may have been written to, or cut.
func TestMirrorOfADamagedFileTakesTheWhole(t *testing.T) {
	first := bf16(t, 1, 5<<20+7, 1000)
	second := []*tensor.Tensor{first[0], bf16(t, 2, 1000)[0].Named(first[1].Name())}
	for name, damage := range map[string]func(path string) error{
		"written to": func(path string) error {
			b := readFile(t, path)
			b[9<<20] ^= 1
			return os.WriteFile(path, b, 0o666)
		},
		"cut":  func(path string) error { return os.Truncate(path, 6<<20) },
		"gone": os.Remove,
	} {
		t.Run(name, func(t *testing.T) {
			_, d := mirrorTwo(t, first, second, func(path string) { must(t, damage(path)) })
			if d.Nothing.Tensors != 0 || d.Whole.Tensors != 2 || d.Failed != 1 {
				t.Errorf("tensors came so: %+v", d)
			}
		})
	}
}
