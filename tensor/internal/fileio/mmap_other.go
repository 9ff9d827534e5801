//go:build !(linux || darwin || freebsd)

package fileio

import (
	"os"
	"runtime"

	"github.com/tryst-rdma/tryst/status"
)

func mmap(*os.File, int) ([]byte, error) {
	return nil, status.Errorf(status.Unimplemented, "files cannot be mapped on %s; read them instead", runtime.GOOS)
}

func munmap([]byte) error { return nil }
