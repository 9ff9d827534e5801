//go:build linux

package shm

import (
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/tryst-rdma/tryst/verbs"
)

// seals are what every memfd must have that is passed to a peer: its size is fixed, its memory
// stays allocated, and nobody but its owner can write it (memfd_create(2), fcntl(2)).
const seals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_FUTURE_WRITE | unix.F_SEAL_SEAL

// tmpfsMagic is TMPFS_MAGIC of <linux/magic.h>. Other memfds have huge pages, whose faults may fail.
const tmpfsMagic = 0x01021994

// MADV_POPULATE_READ and MADV_POPULATE_WRITE (madvise(2)), since Linux 5.14.
const (
	populateRead  = 22
	populateWrite = 23
)

// file is a memfd of this process whose descriptor peers may get.
type file struct {
	id   uint32
	fd   int
	size uint64
	mem  []byte // own mapping; nil for registered memory, which its owner mapped
}

// newMemfd creates a sealed memfd of size bytes, with its memory allocated, and maps it.
func newMemfd(size int) (f *file, err error) {
	fd, err := unix.MemfdCreate("tryst-shm", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|unix.MFD_NOEXEC_SEAL)
	if errors.Is(err, unix.EINVAL) { // before Linux 6.3
		fd, err = unix.MemfdCreate("tryst-shm", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	}
	if err != nil {
		return nil, fmt.Errorf("memfd_create: %w", err)
	}
	defer func() {
		if err != nil {
			_ = unix.Close(fd)
		}
	}()
	if err := unix.Ftruncate(fd, int64(size)); err != nil {
		return nil, fmt.Errorf("ftruncate of a memfd to %d bytes: %w", size, err)
	}
	mem, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("mmap of %d bytes of a memfd: %w", size, err)
	}
	if err := populate(fd, mem); err != nil {
		_ = unix.Munmap(mem)
		return nil, fmt.Errorf("allocating %d bytes of a memfd: %w", size, err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		_ = unix.Munmap(mem)
		return nil, fmt.Errorf("sealing a memfd: %w", err)
	}
	return &file{fd: fd, size: uint64(size), mem: mem}, nil //nolint:gosec // not negative
}

// populate allocates the memory of a memfd. fallocate(2) alone leaves pages that count as holes
// until they are touched (SEEK_HOLE of lseek(2)), and peers accept none.
func populate(fd int, mem []byte) error {
	if err := unix.Madvise(mem, populateWrite); !errors.Is(err, unix.EINVAL) {
		return err
	}
	if err := unix.Fallocate(fd, 0, 0, int64(len(mem))); err != nil { // without it, a lack of memory would raise SIGBUS below
		return err
	}
	for i := 0; i < len(mem); i += 4096 {
		mem[i] = 0
	}
	return nil
}

// free unmaps the memory and closes the descriptor.
func (f *file) free() {
	if f == nil {
		return
	}
	if f.mem != nil {
		_ = unix.Munmap(f.mem)
	}
	_ = unix.Close(f.fd)
	f.mem, f.fd = nil, -1
}

// inode identifies a memfd of a process. Before Linux 5.9 the numbers of different memfds may be equal.
type inode struct {
	dev, ino uint64
	peer     verbs.GID // the process that passed it
}

// checkSeals returns an error unless a descriptor is a sealed memfd. It does not block, whatever the
// descriptor is: the kernel looks at the seals without asking the file system (memfd_fcntl). So
// it comes before every other call.
func checkSeals(fd int) error {
	has, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil {
		return fmt.Errorf("the descriptor is no memfd, it has no seals: %w", err)
	}
	if has&seals != seals {
		return fmt.Errorf("the memfd has the seals %#x, not all of %#x", has, seals)
	}
	return nil
}

// checkMemfd returns the size and the inode of a memfd of a peer. It refuses anything that its
// owner could shrink, let others write, or that is not allocated as a whole: reading a hole
// would allocate memory at the expense of this process.
func checkMemfd(fd int) (size int64, id inode, err error) {
	if err := checkSeals(fd); err != nil {
		return 0, id, err
	}
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil {
		return 0, id, fmt.Errorf("fstatfs: %w", err)
	}
	if fs.Type != tmpfsMagic {
		return 0, id, fmt.Errorf("the descriptor is of a file system of type %#x, not of a memfd", fs.Type)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return 0, id, fmt.Errorf("fstat: %w", err)
	}
	if st.Size < 1 || st.Size > maxFileSize {
		return 0, id, fmt.Errorf("the memfd has %d bytes; allowed are 1 to %d", st.Size, int64(maxFileSize))
	}
	hole, err := unix.Seek(fd, 0, unix.SEEK_HOLE)
	if err != nil {
		return 0, id, fmt.Errorf("looking for holes of a memfd: %w", err)
	}
	if hole != st.Size {
		return 0, id, fmt.Errorf("the memfd of %d bytes has a hole at %d", st.Size, hole)
	}
	return st.Size, inode{dev: uint64(st.Dev), ino: st.Ino}, nil //nolint:unconvert // the type differs between architectures
}

// mappings holds the memfds of peers that an opened device has mapped. A memfd that several
// queue pairs got is mapped once.
type mappings struct {
	mu    sync.Mutex // guards the fields below
	list  map[inode]*mapping
	bytes uint64
	count int // of list, and of those that are about to be mapped
	// byPeer counts for the process that passed the memfd first.
	byPeer map[verbs.GID]share
	limit  uint64 // bytes of one process
	// populate reads all of a mapping, so that memory that cannot be read is an error and not a fault
	// later. Tests replace it.
	populate func(mem []byte) error
}

// readAll is mappings.populate.
func readAll(mem []byte) error {
	if err := unix.Madvise(mem, populateRead); !errors.Is(err, unix.EINVAL) { // EINVAL: before Linux 5.14
		return err
	}
	return nil
}

// share is what is mapped for a process.
type share struct {
	bytes uint64
	count int
}

// mapping is a memfd of a peer, mapped read-only.
type mapping struct {
	id    inode
	peer  verbs.GID
	mem   []byte
	users int // guarded by mappings.mu
}

// add maps the memfd of a descriptor that a peer sent, and closes the descriptor. The caller
// calls release when it no longer reads the memory.
func (m *mappings) add(fd int, peer verbs.GID) (*mapping, error) {
	defer func() { _ = unix.Close(fd) }()
	size, id, err := checkMemfd(fd)
	if err != nil {
		return nil, err
	}
	id.peer = peer
	if x, err := m.find(id, uint64(size), peer); x != nil || err != nil { //nolint:gosec // not negative
		return x, err
	}
	// Mapping takes as long as the memory is large: not under the lock, which others need.
	mem, err := unix.Mmap(fd, 0, int(size), unix.PROT_READ, unix.MAP_SHARED)
	if err == nil {
		if err = m.populate(mem); err != nil {
			_ = unix.Munmap(mem)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.countLocked(peer, -uint64(size), -1) //nolint:gosec // not negative
	if err != nil {
		return nil, fmt.Errorf("the peer's memory of %d bytes cannot be mapped and read: %w", size, err)
	}
	if x := m.list[id]; x != nil { // another queue pair was faster
		_ = unix.Munmap(mem)
		x.users++
		return x, nil
	}
	x := &mapping{id: id, peer: peer, mem: mem, users: 1}
	if m.list == nil {
		m.list = make(map[inode]*mapping)
	}
	m.list[id] = x
	m.countLocked(peer, uint64(len(mem)), 1)
	return x, nil
}

// countLocked counts mappings of n bytes for a process; fewer by an n that wraps around.
func (m *mappings) countLocked(peer verbs.GID, n uint64, mappings int) {
	if m.byPeer == nil {
		m.byPeer = make(map[verbs.GID]share)
	}
	m.bytes += n
	m.count += mappings
	s := m.byPeer[peer]
	if s = (share{s.bytes + n, s.count + mappings}); s == (share{}) {
		delete(m.byPeer, peer)
		return
	}
	m.byPeer[peer] = s
}

// find returns the mapping of a memfd, with one more user. If there is none it returns nil, and
// counts the bytes that the caller is about to map.
func (m *mappings) find(id inode, size uint64, peer verbs.GID) (*mapping, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if x := m.list[id]; x != nil {
		if uint64(len(x.mem)) != size {
			return nil, fmt.Errorf("two memfds of process %v have the inode %d", peer, id.ino)
		}
		x.users++
		return x, nil
	}
	if m.bytes+size > maxMapped {
		return nil, fmt.Errorf("peers share more than %d bytes with this process", uint64(maxMapped))
	}
	s := m.byPeer[peer]
	if s.bytes+size > m.limit {
		return nil, fmt.Errorf("process %v shares more than %d bytes with this one", peer, m.limit)
	}
	if s.count >= maxMappingsOfOne || m.count >= maxMappings {
		return nil, fmt.Errorf("process %v shares %d memfds with this one, and all processes %d; at most %d and %d are mapped", peer, s.count, m.count, maxMappingsOfOne, maxMappings)
	}
	m.countLocked(peer, size, 1)
	return nil, nil //nolint:nilnil // the comment says so
}

// release gives a mapping up. The last one unmaps it, which takes as long as the memory is large: not
// under the lock, which others need. It counts until then.
func (m *mappings) release(x *mapping) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if x.users--; x.users > 0 {
		return
	}
	delete(m.list, x.id)
	n := uint64(len(x.mem))
	m.mu.Unlock()
	_ = unix.Munmap(x.mem)
	m.mu.Lock()
	x.mem = nil
	m.countLocked(x.peer, -n, -1)
}
