package checkpoint_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/tryst-rdma/tryst/internal/checkpoint"
	trystpb "github.com/tryst-rdma/tryst/internal/proto/tryst"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
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

// TestOutStaysInItsDirectory: symbolic links that stand where a pull writes are neither followed nor written
// through, with and without force: not to a file that the pull would go on with, nor to a name that is free.
func TestOutStaysInItsDirectory(t *testing.T) {
	published := writeSafetensors(t, filepath.Join(t.TempDir(), "m.safetensors"), nil, patterned(t, "a", 3*mib), patterned(t, "b", 3*mib))
	for _, ext := range []string{"", ".part", ".part.journal"} {
		for _, free := range []bool{false, true} {
			for _, force := range []bool{false, true} {
				t.Run(fmt.Sprintf("out%s free=%v force=%v", ext, free, force), func(t *testing.T) {
					b := begin(t, published, 3*mib) // leaves a .part and its journal
					name, outside := b.out+ext, filepath.Join(t.TempDir(), "outside")
					if ext == "" {
						writeFile(t, name, []byte("precious"))
					}
					must(t, os.Rename(name, outside))
					must(t, os.Symlink(outside, name))
					var before []byte
					if free {
						must(t, os.Remove(outside))
					} else {
						before = readFile(t, outside)
					}
					_, err := b.Save(t.Context(), checkpoint.PullRequest{}, checkpoint.SaveOptions{Out: b.out, Force: force})
					after, gone := os.ReadFile(outside)
					if free != (gone != nil) || !bytes.Equal(after, before) {
						t.Errorf("the file outside was written: it has %d bytes, before %d (%v, %v)", len(after), len(before), gone, err)
					}
					stat, missing := os.Lstat(b.out)
					switch {
					case ext == "" && !force:
						mustBe(t, err, status.AlreadyExists, b.out, "exists")
						if missing != nil || stat.Mode().Type() != os.ModeSymlink {
							t.Errorf("the link was replaced without force (%v)", missing)
						}
					case ext == ".part":
						if err == nil || missing == nil {
							t.Errorf("a .part that is a link was taken (%v, %v)", err, missing)
						}
					default:
						must(t, err)
						if missing != nil || !stat.Mode().IsRegular() || !bytes.Equal(readFile(t, b.out), readFile(t, published)) {
							t.Errorf("the result is not the file (%v)", missing)
						}
					}
				})
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
