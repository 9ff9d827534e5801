//go:build linux

package shm

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tryst-rdma/tryst/verbs"
)

// breakMemory makes memory that an end has mapped of its peer unreadable, as a page is that cannot be
// read from swap.
func breakMemory(t *testing.T, mem []byte) {
	t.Helper()
	if err := unix.Mprotect(mem, unix.PROT_NONE); err != nil {
		t.Fatal(err)
	}
}

// TestMemoryThatCannotBeReadBreaksItsPeerAlone: a fault in the peer's ring or in its content breaks that
// queue pair. The process, and its other queue pairs, go on.
func TestMemoryThatCannotBeReadBreaksItsPeerAlone(t *testing.T) {
	for name, c := range map[string]struct {
		of   func(l *connection) []byte
		post func(x, y *testEnd) // something that y's process reads
		want verbs.Status        // of it; OK for any
	}{
		"content of a SEND": {
			content, func(x, y *testEnd) { y.recv(5, 0, 4096); x.post(x.to(y, 1, verbs.OpSend, 0, 4096, 0)) },
			verbs.StatusRemoteInvalidRequest,
		},
		"content of a WRITE": {
			content, func(x, y *testEnd) { x.post(x.to(y, 1, verbs.OpWrite, 0, 4096, 0)) },
			verbs.StatusRemoteInvalidRequest,
		},
		"ring": {
			func(l *connection) []byte { return l.peer },
			func(x, y *testEnd) { x.post(x.to(y, 1, verbs.OpWrite, 0, 8, 0)) },
			verbs.StatusOK, // the victim can read nothing, and closes
		},
		"entries of the ring": {
			func(l *connection) []byte { return l.peer[entriesAt:] },
			func(x, y *testEnd) { x.post(x.to(y, 1, verbs.OpWrite, 0, 8, 0)) },
			verbs.StatusOK,
		},
		"content of a READ": {
			content, func(x, y *testEnd) { y.post(y.to(x, 1, verbs.OpRead, 0, 4096, 0)); y.ends(1, verbs.StatusBadResponse) },
			verbs.StatusOK,
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := New(Options{})
			x, y := newPair(t, p, 1<<16)
			other, second := newPair(t, p, 1<<16)
			for _, pair := range [][2]*testEnd{{x, y}, {other, second}} {
				pair[0].post(pair[0].to(pair[1], 9, verbs.OpWrite, 0, 4096, 0)) // connected, and the memory is mapped
				pair[0].ends(9, verbs.StatusOK)
			}
			y.qp.drive.Lock() // nobody reads meanwhile
			breakMemory(t, c.of(y.qp.live.Load()))
			y.qp.drive.Unlock()
			c.post(x, y)
			y.finishes(t, true)
			if c.want != verbs.StatusOK {
				x.ends(1, c.want)
			}
			other.post(other.to(second, 2, verbs.OpWrite, 0, 4096, 0))
			other.ends(2, verbs.StatusOK)
		})
	}
}

// TestMemoryThatCannotBePopulatedBreaksItsPeerAlone: a memfd that the kernel cannot read as a whole is
// refused before anything is read. It counts for nobody.
func TestMemoryThatCannotBePopulatedBreaksItsPeerAlone(t *testing.T) {
	p := New(Options{})
	x := newTestEnd(t, p, 4096)
	other, second := newPair(t, p, 1<<16)
	other.post(other.to(second, 1, verbs.OpWrite, 0, 4096, 0))
	other.ends(1, verbs.StatusOK)
	i := newImpostor(t, x)
	i.passRing()
	maps := &as[*device](x.dev).maps
	maps.mu.Lock()
	bytes, count := maps.bytes, maps.count
	maps.mu.Unlock()
	failed := 0
	x.qp.drive.Lock() // nobody maps anything meanwhile
	maps.populate = func([]byte) error { failed++; return unix.EHWPOISON }
	x.qp.drive.Unlock()
	f := must(newMemfd(4096))(t)
	defer f.free()
	m := fileMessage(kindFile, 1)
	i.write(m[:], []int{f.fd})
	x.finishes(t, true)
	maps.mu.Lock()
	if failed != 1 || maps.bytes != bytes || maps.count != count {
		t.Errorf("%d memfds could not be read; %d bytes of %d memfds count, before %d of %d", failed, maps.bytes, maps.count, bytes, count)
	}
	maps.mu.Unlock()
	other.post(other.to(second, 2, verbs.OpWrite, 0, 4096, 0))
	other.ends(2, verbs.StatusOK)
}

// content is the memfd of the peer that a connected queue pair has mapped.
func content(l *connection) []byte {
	for _, m := range l.files {
		return m.mem
	}
	return nil
}
