//go:build rxe && linux

package verbs_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/safetensors"
)

// A client pulls a checkpoint over verbs alone, and gets an identical file. With -short without the tensor of 256 MiB.
func TestRxeCheckpointPullOverVerbs(t *testing.T) {
	for _, tt := range []struct {
		name  string
		sizes []int64
	}{
		{"sizes up to 64 MiB", []int64{0, 1, 1000, 8 << 10, 8<<10 + 1, 100_000, 1 << 20, 1<<20 + 13, 16 << 20, 64 << 20}},
		{"one tensor of 256 MiB", []int64{256 << 20}},
	} {
		if testing.Short() && len(tt.sizes) == 1 {
			continue
		}
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "m.safetensors")
			total := writeCheckpoint(t, path, tt.sizes)
			bed := newTestbed(t, 1)
			server := bed.start(0, settings{Fallback: "none"})
			server.do(command{Op: opPublish, Name: "m", Path: path})
			since := bed.sentPackets("rxe0")
			client := bed.launchClient()
			client.do(command{Op: opPull, Name: "m", Path: filepath.Join(dir, "copy.safetensors")})
			// All bytes took verbs, and the frames were on the cable.
			s := client.state()
			if s.Bytes["verbs"] != total || s.Tensors["verbs"] != len(tt.sizes) || len(s.Tensors) != 1 {
				t.Errorf("received tensors %v and bytes %v, want %d tensors and %d bytes over verbs", s.Tensors, s.Bytes, len(tt.sizes), total)
			}
			if n, minimum := bed.sentPackets("rxe0")-since, uint64(total/page); n < minimum {
				t.Errorf("rxe0 has sent %d packets, want at least %d", n, minimum)
			}
			client.close()
			server.untilIdle()
			server.close()
			sameFiles(t, path, filepath.Join(dir, "copy.safetensors"))
		})
	}
}

// launchClient starts a process outside of the cluster, on the device that task 0 does not use.
func (bed *testbed) launchClient() *process {
	bed.t.Helper()
	p := bed.launch(1, settings{Dial: bed.proxies[0].Addr(), Fallback: "none"})
	if r := p.wait(0); r.Code != "" {
		bed.t.Fatalf("the client does not start: %s", r.Text)
	}
	return p
}

// writeCheckpoint writes a file with tensors of the given sizes, and returns the sum of the sizes.
func writeCheckpoint(t *testing.T, path string, sizes []int64) (total int64) {
	t.Helper()
	var specs []safetensors.Spec
	for i, n := range sizes {
		shape, err := tensor.NewShape(n)
		if err != nil {
			t.Fatal(err)
		}
		specs = append(specs, safetensors.Spec{Name: fmt.Sprintf("x%02d", i), DType: tensor.Uint8, Shape: shape})
		total += n
	}
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	sw, err := safetensors.NewWriter(f, specs, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, info := range sw.Tensors() {
		b := make([]byte, sizes[i])
		fill(b, uint64(i+1))
		if _, err := f.WriteAt(b, info.Offset); err != nil {
			t.Fatal(err)
		}
	}
	return total
}

func sameFiles(t *testing.T, a, b string) {
	t.Helper()
	x, err := os.ReadFile(a)
	if err != nil {
		t.Fatal(err)
	}
	y, err := os.ReadFile(b)
	if err != nil {
		t.Fatal(err)
	}
	if string(x) != string(y) {
		t.Errorf("%s and %s differ", a, b)
	}
}
