//go:build !race

package tensor

import "syscall"

// hugePageBlock is the size in bytes from which a block is mapped with huge pages
// (2 MiB on amd64): at least half of such a block lies in whole huge pages.
const hugePageBlock = 4 << 20

// adviseHugePages requests huge pages (madvise(2), MADV_HUGEPAGE), so that a new
// block causes a page fault for each 2 MiB and not for each 4 KiB. The error of a
// kernel without huge pages is ignored.
func adviseHugePages(b []byte) {
	if len(b) >= hugePageBlock {
		_ = syscall.Madvise(b, syscall.MADV_HUGEPAGE)
	}
}
