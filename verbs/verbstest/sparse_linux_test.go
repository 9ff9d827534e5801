package verbstest

import (
	"bytes"
	"os"
	"strconv"
	"syscall"
	"testing"

	"github.com/tryst-rdma/tryst/verbs"
)

// TestSparseTransferTakesNoMemory moves more than 4 GiB of a mapping of which a
// few bytes are set: they arrive at their places, and the rest takes no memory.
func TestSparseTransferTakesNoMemory(t *testing.T) {
	const size, chunk = 4<<30 + 64<<20, 512 << 20
	a, b := pair(t, NewFabric(Options{Seed: 1}))
	var mrs [2]verbs.MR
	var mems [2][]byte
	for i, s := range []*side{a, b} {
		mem, err := syscall.Mmap(-1, 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE|syscall.MAP_NORESERVE)
		if err != nil {
			t.Fatal(err)
		}
		mems[i] = mem
		_ = syscall.Madvise(mem, syscall.MADV_HUGEPAGE) // fewer page faults, where it is possible
		if mrs[i], err = s.pd.RegisterMemory(mem, verbs.AccessLocalWrite|verbs.AccessRemoteWrite); err != nil {
			t.Fatal(err)
		}
	}
	defer func() {
		for i := range mrs {
			mrs[i].Close()
			if err := syscall.Munmap(mems[i]); err != nil {
				t.Error(err)
			}
		}
	}()
	marks := []uint64{0, 4095, 1<<31 - 1, 1<<32 - 3, 1 << 32, size - 7}
	for i, m := range marks {
		mems[0][m] = byte(i + 1)
	}
	mems[1][123456789] = 9 // is overwritten with 0
	before := rssAnon(t)
	for off := uint64(0); off < size; off += chunk {
		n := min(chunk, size-off)
		a.post(verbs.SendWR{
			ID: 1, Op: verbs.OpWrite, Signaled: true, RemoteAddr: mrs[1].Addr() + off, RKey: mrs[1].RKey(),
			SGL: []verbs.SGE{{Addr: mrs[0].Addr() + off, Length: uint32(n), LKey: mrs[0].LKey()}},
		})
		a.expect(1, verbs.StatusOK)
	}
	for i, m := range marks {
		if mems[1][m] != byte(i+1) {
			t.Errorf("byte %d is %d, want %d", m, mems[1][m], i+1)
		}
	}
	if mems[1][123456789] != 0 {
		t.Error("an empty page did not overwrite what was there")
	}
	if grown := rssAnon(t) - before; grown > 64<<20 {
		t.Errorf("the transfer took %d MiB of memory", grown>>20)
	}
}

// rssAnon is the process's own memory in bytes (proc_pid_status(5)).
func rssAnon(t *testing.T) int {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(status) {
		if f := bytes.Fields(line); len(f) == 3 && string(f[0]) == "RssAnon:" {
			n, err := strconv.Atoi(string(f[1]))
			if err != nil {
				t.Fatal(err)
			}
			return n << 10
		}
	}
	t.Fatal("no RssAnon in /proc/self/status")
	return 0
}
