package regmem

import (
	"bytes"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// mapMemory returns size zero bytes, a multiple of pageMultiple.
func mapMemory(size int, want mapping) ([]byte, mapping, error) {
	const access, private = unix.PROT_READ | unix.PROT_WRITE, unix.MAP_ANON | unix.MAP_PRIVATE
	switch want {
	case goHeap:
		b, err := heapMemory(size)
		return b, goHeap, err
	case lazyPages:
		// Nothing of it is locked, and a test's tensor of many GiB is more
		// than the machine promises.
		b, err := unix.Mmap(-1, 0, size, access, private|unix.MAP_NORESERVE)
		return b, lazyPages, os.NewSyscallError("mmap", err)
	}
	if b := mapHuge(size); b != nil {
		return b, hugePages, nil
	}
	// No MAP_POPULATE: registering faults every page in, and says so when there
	// is none; populating ignores it.
	b, err := unix.Mmap(-1, 0, size, access, private)
	if err != nil {
		return nil, pages, os.NewSyscallError("mmap", err)
	}
	_ = unix.Madvise(b, unix.MADV_HUGEPAGE) // a kernel without them refuses, and nothing is lost
	return b, pages, nil
}

// mapHuge maps huge pages of the system's pool; nil when there are not enough,
// the size is not a multiple of theirs, or the kernel is older than 5.14.
// Such a mapping can succeed where touching it kills the process with SIGBUS (a
// container whose hugetlb controller allows none), so all of it is touched by
// MADV_POPULATE_WRITE, which has an error instead.
func mapHuge(size int) []byte {
	if huge := hugePageSize(); huge == 0 || size%huge != 0 {
		return nil
	}
	b, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE|unix.MAP_HUGETLB)
	if err != nil {
		return nil
	}
	if unix.Madvise(b, unix.MADV_POPULATE_WRITE) != nil {
		_ = unix.Munmap(b)
		return nil
	}
	return b
}

// hugePageSize is the system's default huge page in bytes (proc_meminfo(5)); 0
// when it has none.
func hugePageSize() int {
	info, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	return parseHugePageSize(info)
}

func parseHugePageSize(info []byte) int {
	for line := range bytes.Lines(info) {
		rest, ok := bytes.CutPrefix(line, []byte("Hugepagesize:"))
		if !ok {
			continue
		}
		fields := bytes.Fields(rest)
		if len(fields) != 2 || string(fields[1]) != "kB" {
			return 0
		}
		kb, err := strconv.Atoi(string(fields[0]))
		if err != nil || kb <= 0 || kb > 64<<20 {
			return 0
		}
		return kb << 10
	}
	return 0
}

// unmapMemory gives memory back. That fails only when the process has so many
// mappings that it may not split one; then it stays, as nobody could do better.
func unmapMemory(b []byte, kind mapping) {
	if kind != goHeap {
		_ = unix.Munmap(b)
	}
}
