//go:build linux || darwin

package checkpoint

import (
	"os"
	"syscall"
)

// freeSpace returns how many bytes of disk this process may still use on the file system of f. It
// returns false where that is not known, for instance on a file system without a size.
func freeSpace(f *os.File) (int64, bool) {
	var s syscall.Statfs_t
	if err := syscall.Fstatfs(int(f.Fd()), &s); err != nil || s.Blocks == 0 || s.Bsize <= 0 {
		return 0, false
	}
	free := float64(s.Bavail) * float64(s.Bsize)
	return int64(min(free, 1<<62)), true
}

// usedSpace returns how many bytes of disk a file has.
func usedSpace(f *os.File) int64 {
	stat, err := f.Stat()
	if err != nil {
		return 0
	}
	st, ok := stat.Sys().(*syscall.Stat_t)
	if !ok {
		return 0
	}
	return st.Blocks * 512 // stat(2): whatever the block size of the file system
}

// manyNames reports whether a file has another name (a hard link).
func manyNames(stat os.FileInfo) bool {
	st, ok := stat.Sys().(*syscall.Stat_t)
	return ok && st.Nlink > 1
}
