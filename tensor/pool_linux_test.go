//go:build !race

package tensor

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// TestPoolPeakMemory: a process that receives one large tensor after another
// never takes more memory than one of them plus 64 MiB. (With the race
// detector large blocks are Go heap memory, and the bound does not hold.)
func TestPoolPeakMemory(t *testing.T) {
	const size, variable = 512 << 20, "TRYST_TEST_POOL_PEAK"
	if os.Getenv(variable) != "" {
		p := NewPool(PoolOptions{})
		for range 3 {
			b := allocate(t, p, size)
			for i := 0; i < size; i += 4096 {
				b.Bytes()[i] = 1
			}
			b.Release()
		}
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestPoolPeakMemory$")
	cmd.Env = append(os.Environ(), variable+"=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	if !ok {
		t.Fatalf("usage is a %T", cmd.ProcessState.SysUsage())
	}
	peak := usage.Maxrss << 10 // KiB
	t.Logf("peak %d MiB", peak>>20)
	if peak > size+64<<20 {
		t.Errorf("peak %d MiB for tensors of %d MiB", peak>>20, size>>20)
	}
}
