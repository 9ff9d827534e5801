package checkpoint

import (
	"os"
	"syscall"
)

// syncFileRangeWrite is SYNC_FILE_RANGE_WRITE of sync_file_range(2): begin to write the dirty pages
// of the range to the disk, and do not wait for them.
const syncFileRangeWrite = 2

// beginWriteback makes the kernel write a range of a file to the disk. It waits at most for space in
// the queue of the disk. Errors are left to the sync of the whole file, which reports them too.
func beginWriteback(f *os.File, p piece) {
	_ = syscall.SyncFileRange(int(f.Fd()), p.off, p.n, syncFileRangeWrite)
}
