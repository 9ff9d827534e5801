package tensor

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/tryst-rdma/tryst/status"
)

// TestMoreThanTheMachineHas: what the system does not give is an error, of a
// pool and of the heap, and not the end of the process.
func TestMoreThanTheMachineHas(t *testing.T) {
	if mode, err := os.ReadFile("/proc/sys/vm/overcommit_memory"); err != nil || string(bytes.TrimSpace(mode)) == "1" {
		t.Skipf("this system promises any memory (overcommit_memory %s, %v)", mode, err)
	}
	n := memoryOfMachine(t) + 1<<30
	if n > MaxHeap {
		t.Skipf("%d bytes are above MaxHeap", n)
	}
	for name, a := range map[string]Allocator{"Heap": Heap{}, "Pool": NewPool(PoolOptions{})} {
		b, err := a.Allocate(n)
		if err == nil {
			b.Release()
		}
		if status.CodeOf(err) != status.ResourceExhausted ||
			!strings.Contains(err.Error(), fmt.Sprintf("cannot allocate %d bytes", n)) ||
			!strings.Contains(err.Error(), "mmap: cannot allocate memory") {
			t.Errorf("%s: %d bytes: %v", name, n, err)
		}
	}
}

// memoryOfMachine returns its memory and swap space, in bytes.
func memoryOfMachine(t *testing.T) (total int) {
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var name string
		var kib int
		if _, err := fmt.Sscan(lines.Text(), &name, &kib); err == nil && (name == "MemTotal:" || name == "SwapTotal:") {
			total += kib << 10
		}
	}
	return total
}
