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
		// Without MAP_NORESERVE a tensor of many GiB may exceed the commit limit, even
		// if few of its pages are touched.
		b, err := unix.Mmap(-1, 0, size, access, private|unix.MAP_NORESERVE)
		return b, lazyPages, os.NewSyscallError("mmap", err)
	}
	if b := mapHuge(size); b != nil {
		return b, hugePages, nil
	}
	// No MAP_POPULATE: registering faults every page in, and reports an error when memory
	// is short, which MAP_POPULATE ignores (mmap(2)).
	b, err := unix.Mmap(-1, 0, size, access, private)
	if err != nil {
		return nil, pages, os.NewSyscallError("mmap", err)
	}
	_ = unix.Madvise(b, unix.MADV_HUGEPAGE) // optional: a kernel without transparent huge pages refuses
	return b, pages, nil
}

// copyInto prepares lazyPages for contents, which the processor copies there: with huge pages it is
// faster, and there are fewer page faults. Messages go without: few of their pages are touched.
func copyInto(b []byte, kind mapping) {
	if kind == lazyPages {
		_ = unix.Madvise(b, unix.MADV_HUGEPAGE) // optional, as in mapMemory
	}
}

// mapHuge maps huge pages of the system's pool. It returns nil when there are not enough,
// when size is not a multiple of their size, or when the kernel is older than 5.14. In a
// container whose hugetlb controller allows no huge pages, mmap succeeds and the first
// access kills the process with SIGBUS. So MADV_POPULATE_WRITE touches all pages, and
// returns an error instead.
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

// hugePageSize is the size of the system's default huge page in bytes
// (proc_meminfo(5)); 0 when there are none.
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

// unmapMemory returns memory to the system. munmap fails only when the process has too
// many mappings to split one (munmap(2)); the memory then stays mapped.
func unmapMemory(b []byte, kind mapping) {
	if kind != goHeap {
		_ = unix.Munmap(b)
	}
}

// discardPages gives pages of lazyPages back to the system (madvise(2), MADV_DONTNEED). Their content
// is zero afterwards.
func discardPages(b []byte) {
	_ = unix.Madvise(b, unix.MADV_DONTNEED) // it fails for mappings of other kinds only
}
