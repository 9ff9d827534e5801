package checkpoint_test

import (
	"context"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/tryst-rdma/tryst/checkpoint"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	trystpb "github.com/tryst-rdma/tryst/proto/tryst"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/tensortest"
)

// claiming returns a server that claims tensors of so many bytes, and gives them in pieces.
func claiming(sizes ...int64) *liar {
	const piece = 4 << 20
	l := &liar{manifest: claimed(sizes)}
	opened := &trystpb.OpenResponse{StepId: 5, Last: true}
	for n, size := range sizes {
		name := string(rune('a' + n))
		const device = "/job:worker/replica:0/task:0/device:CPU:0"
		for off := int64(0); off < size; off += piece {
			opened.Keys = append(opened.Keys, &trystpb.TensorKey{Name: name, Key: rendezvous.CreateKey(device, 1, device, name, rendezvous.FrameIter{}), Offset: uint64(off), Bytes: uint64(min(piece, size-off))})
		}
	}
	l.opened = []*trystpb.OpenResponse{opened}
	return l
}

// few is a Receiver that answers some receives, and calls then when all others wait.
type few struct {
	deaf
	t    *testing.T
	left atomic.Int64
	then func()
}

func (f *few) RecvAsync(ctx context.Context, step int64, key rendezvous.Key, args rendezvous.Args, done rendezvous.DoneFunc) {
	if f.left.Add(-1) >= 0 {
		go done(rendezvous.Value{Tensor: tensortest.Sequence(f.t, tensor.Uint8, 4<<20).Retain()}, args, nil)
		return
	}
	f.then()
	f.deaf.RecvAsync(ctx, step, key, args, done)
}

// TestClaimTakesLittleDisk: a server that claims much and sends little fills no disk. The .part has its
// size, and disk for little more than what came, however many files there are.
func TestClaimTakesLittleDisk(t *testing.T) {
	const gib = 1 << 30
	dir := t.TempDir()
	var fs syscall.Statfs_t
	must(t, syscall.Statfs(dir, &fs))
	if free := fs.Bavail * uint64(fs.Bsize); free < 4*gib {
		t.Fatalf("%d bytes are free in %s; this test claims 3 GiB of them, so let TMPDIR name a directory with 4 GiB", free, dir)
	}
	ctx, cancel := context.WithCancel(t.Context())
	used, size := int64(0), int64(0)
	f := &few{t: t, then: func() {
		used, size = 0, 0
		for _, name := range []string{"a", "b", "c"} {
			stat, err := os.Stat(filepath.Join(dir, name+".safetensors.part"))
			if err == nil {
				used += stat.Sys().(*syscall.Stat_t).Blocks * 512 //nolint:errcheck // it is one on Linux
				size += stat.Size()
			}
		}
		cancel()
	}}
	f.left.Store(5)
	p := pullFromReceiver(t, claiming(gib, gib, gib), f)
	_, err := p.Save(ctx, checkpoint.PullRequest{Publication: "m", Inflight: 1}, checkpoint.SaveOptions{Out: dir})
	mustBe(t, err, status.Cancelled)
	if size < 3*gib {
		t.Errorf("the files have %d bytes", size)
	}
	if used > gib+5*4<<20+1<<20 {
		t.Errorf("they use %d bytes of disk", used)
	}
}

// TestDiskThatIsTooSmallIsAnEarlyError: what does not fit is refused before anything is transferred, of
// one file and of several that only fit one by one.
func TestDiskThatIsTooSmallIsAnEarlyError(t *testing.T) {
	dir := t.TempDir()
	var fs syscall.Statfs_t
	must(t, syscall.Statfs(dir, &fs))
	free := int64(fs.Bavail) * fs.Bsize
	for _, sizes := range [][]int64{{free + 1<<30}, {free/2 + 1<<30, free/2 + 1<<30}} {
		p := pullFromReceiver(t, &liar{manifest: claimed(sizes)}, deaf{})
		_, err := p.Save(t.Context(), checkpoint.PullRequest{Publication: "m"}, checkpoint.SaveOptions{Out: dir})
		mustBe(t, err, status.ResourceExhausted, "a.safetensors.part", "bytes of disk", "are free")
		requireOnly(t, dir)
	}
}

// claimed is the manifest of claiming.
func claimed(sizes []int64) *trystpb.DescribeResponse {
	m := &trystpb.DescribeResponse{Publication: &trystpb.Publication{Name: "m", Version: "1"}, DigestAlgorithm: checkpoint.XXH64}
	for n, size := range sizes {
		name := string(rune('a' + n))
		m.Files = append(m.Files, &trystpb.FileInfo{Name: name + ".safetensors", Format: checkpoint.FormatSafetensors, Bytes: uint64(size) + 100})
		m.Tensors = append(m.Tensors, &trystpb.TensorInfo{Name: name, Dtype: tfpb.DataType_DT_UINT8, Shape: []int64{size}, Bytes: uint64(size), Digest: make([]byte, 8), File: uint32(n)})
	}
	return m
}

// TestOutStaysInItsDirectory: symbolic links that stand where a pull writes are neither followed nor
// written through, with and without force.
func TestOutStaysInItsDirectory(t *testing.T) {
	h := serve(t)
	h.publish("m", writeSafetensors(t, filepath.Join(t.TempDir(), "m.safetensors"), nil, model(t)...))
	for _, name := range []string{"m.safetensors", "m.safetensors.part", "m.safetensors.part.journal"} {
		for _, force := range []bool{false, true} {
			dir, outside := t.TempDir(), filepath.Join(t.TempDir(), "precious")
			writeFile(t, outside, []byte("precious"))
			must(t, os.Symlink(outside, filepath.Join(dir, name)))
			_, err := h.dial().Save(t.Context(), checkpoint.PullRequest{}, checkpoint.SaveOptions{Out: dir, Force: force})
			if got := readFile(t, outside); string(got) != "precious" {
				t.Errorf("%s, force %v: the file outside was written (%v)", name, force, err)
			}
			if err == nil {
				stat, err := os.Lstat(filepath.Join(dir, "m.safetensors"))
				must(t, err)
				if !stat.Mode().IsRegular() {
					t.Errorf("%s, force %v: it is no file", name, force)
				}
			}
		}
	}
}

// TestPartThatIsNoFile: what stands in the place of a .part, and is none, is left as it is.
func TestPartThatIsNoFile(t *testing.T) {
	h := serve(t)
	h.publish("m", writeSafetensors(t, filepath.Join(t.TempDir(), "m.safetensors"), nil, model(t)...))
	dir := t.TempDir()
	must(t, syscall.Mkfifo(filepath.Join(dir, "m.safetensors.part"), 0o600))
	_, err := h.dial().Save(t.Context(), checkpoint.PullRequest{}, checkpoint.SaveOptions{Out: dir, Force: true})
	mustBe(t, err, status.InvalidArgument, "m.safetensors.part", "not a regular file")
}
