package regmem

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// seals keep a peer that maps an arena from a fault (SHRINK), and from writing (FUTURE_WRITE,
// which leaves the mapping of this process writable). SEAL keeps the others (memfd_create(2)).
const seals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_FUTURE_WRITE | unix.F_SEAL_SEAL

// mapShared returns size zero bytes, a multiple of pageMultiple, and the memfd that they
// are: sealed, and without holes, since a peer that reads a hole allocates a page that counts
// as the peer's. All its pages are present, so a later use of them cannot fail for lack of
// memory.
func mapShared(size int) (mem []byte, fd int, err error) {
	// Beyond the limit of file sizes ftruncate sends SIGXFSZ, which ends a Go program.
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &limit); err == nil && uint64(size) > limit.Cur { //nolint:gosec // never negative
		return nil, -1, fmt.Errorf("files of this process have at most %d bytes (RLIMIT_FSIZE)", limit.Cur)
	}
	fd, err = unix.MemfdCreate("tryst", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|unix.MFD_NOEXEC_SEAL)
	if errors.Is(err, unix.EINVAL) { // Linux before 6.3
		fd, err = unix.MemfdCreate("tryst", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	}
	if err != nil {
		return nil, -1, os.NewSyscallError("memfd_create", err)
	}
	if mem, err = mapFile(fd, size); err != nil {
		_ = unix.Close(fd)
		return nil, -1, err
	}
	return mem, fd, nil
}

func mapFile(fd, size int) ([]byte, error) {
	if err := unix.Ftruncate(fd, int64(size)); err != nil {
		return nil, os.NewSyscallError("ftruncate", err)
	}
	mem, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, os.NewSyscallError("mmap", err)
	}
	_ = unix.Madvise(mem, unix.MADV_HUGEPAGE) // optional: most systems allow no huge pages for memfds
	if err := populate(fd, mem); err != nil {
		_ = unix.Munmap(mem)
		return nil, err
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil { //nolint:gosec // never negative
		_ = unix.Munmap(mem)
		return nil, os.NewSyscallError("fcntl(F_ADD_SEALS)", err)
	}
	return mem, nil
}

// populate allocates all pages of the file and maps them. fallocate alone does not suffice:
// its pages count as holes until they are touched (lseek(2), SEEK_HOLE).
func populate(fd int, mem []byte) error {
	err := unix.Madvise(mem, unix.MADV_POPULATE_WRITE)
	if !errors.Is(err, unix.EINVAL) {
		return os.NewSyscallError("madvise(MADV_POPULATE_WRITE)", err)
	}
	// Linux before 5.14. A touch of a page that cannot be allocated would end the process.
	if err := unix.Fallocate(fd, 0, 0, int64(len(mem))); err != nil {
		return os.NewSyscallError("fallocate", err)
	}
	for i := 0; i < len(mem); i += os.Getpagesize() {
		mem[i] = 0
	}
	return nil
}

func closeFile(fd int) { _ = unix.Close(fd) }
