//go:build unix

package command

import (
	"os"
	"strconv"
	"syscall"
)

// limitFiles makes writes beyond so many bytes of a file fail, as on a full
// disk.
func limitFiles(bytes string) {
	if bytes == "" {
		return
	}
	n, err := strconv.ParseUint(bytes, 10, 63)
	if err == nil {
		err = syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: n, Max: n})
	}
	if err != nil {
		os.Exit(99) // no status of the command
	}
}
