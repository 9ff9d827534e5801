package bench

import (
	"testing"

	"golang.org/x/sys/unix"
)

// TestOwnedMemoryIsThatWhichCanBeWritten: shared memory of another process, which is mapped read-only, does not count.
func TestOwnedMemoryIsThatWhichCanBeWritten(t *testing.T) {
	const size = 64 << 20
	fd, err := unix.MemfdCreate("owned", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Ftruncate(fd, size); err != nil {
		t.Fatal(err)
	}
	grows := func(protection int, touch func(b []byte)) int64 {
		t.Helper()
		before, err := owned()
		if err != nil {
			t.Fatal(err)
		}
		b, err := unix.Mmap(fd, 0, size, protection, unix.MAP_SHARED)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = unix.Munmap(b) }()
		touch(b)
		after, err := owned()
		if err != nil {
			t.Fatal(err)
		}
		return after - before
	}
	if n := grows(unix.PROT_READ|unix.PROT_WRITE, func(b []byte) {
		for i := 0; i < len(b); i += 4096 {
			b[i] = 1
		}
	}); n < size/2 {
		t.Errorf("memory of its own counts %d of %d bytes", n, size)
	}
	sum := byte(0)
	if n := grows(unix.PROT_READ, func(b []byte) {
		for i := 0; i < len(b); i += 4096 {
			sum += b[i]
		}
	}); n > size/2 {
		t.Errorf("memory of another process counts %d of %d bytes", n, size)
	}
}
