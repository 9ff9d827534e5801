//go:build !race

package tensor

import "syscall"

// hugePageBlock is the size from which a block is worth huge pages (2 MiB on
// amd64): most of it then lies in whole ones.
const hugePageBlock = 4 << 20

// adviseHugePages asks for huge pages: the first write to a block then costs a
// fault for each 2 MiB and not for each 4 KiB, which makes filling a new block
// of 16 MiB three to five times faster. A kernel without them refuses, and
// nothing is lost.
func adviseHugePages(b []byte) {
	if len(b) >= hugePageBlock {
		_ = syscall.Madvise(b, syscall.MADV_HUGEPAGE)
	}
}
