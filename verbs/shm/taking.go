//go:build linux

package shm

import (
	"errors"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/tryst-rdma/tryst/verbs"
)

// taking takes a packet with descriptors from the socket of a proved peer, and maps its memfd, in a
// goroutine of its own. A hostile peer may make that last: it can hold the lock of its memfd's inode,
// for one. So a goroutine that waits for it can leave (abandon).
type taking struct {
	stop chan struct{} // closed by abandon
	done chan struct{} // closed when the fields below are set

	packet [maxPacket]byte
	n      int      // bytes of the packet
	file   *mapping // if err is nil
	err    error

	mu        sync.Mutex // guards the fields below
	finished  bool
	abandoned func()
}

// take begins to take the packet at the head of a socket. Until it is done nothing else reads the
// socket. then is called when it is done.
func (d *device) take(raw syscall.RawConn, peer verbs.GID, then func()) *taking {
	t := &taking{stop: make(chan struct{}), done: make(chan struct{})}
	go func() { // ends when the packet was taken, or t abandoned while it waits for a place
		if d.takers.enter(peer, t.stop) {
			t.file, t.err = d.takeFile(raw, t, peer)
			d.takers.leave(peer)
		} else {
			t.err = errors.New("the connection was closed")
		}
		t.finish(d)
		then()
	}()
	return t
}

func (t *taking) finish(d *device) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.finished = true
	close(t.done)
	if t.abandoned != nil {
		t.dropLocked(d)
	}
}

// abandon gives the result up. after is called when nothing reads the socket any more, here or later by
// the goroutine.
func (t *taking) abandon(d *device, after func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	close(t.stop)
	t.abandoned = after
	if t.finished {
		t.dropLocked(d)
	}
}

func (t *taking) dropLocked(d *device) {
	if t.file != nil {
		d.maps.release(t.file)
	}
	t.abandoned()
}

// takeFile does the work of take.
func (d *device) takeFile(raw syscall.RawConn, t *taking, peer verbs.GID) (*mapping, error) {
	oob := make([]byte, unix.CmsgSpace(4*maxDescriptors))
	oobn, flags := 0, 0
	var failed error
	err := raw.Control(func(fd uintptr) { t.n, oobn, flags, failed = recvmsg(int(fd), t.packet[:], oob, 0) })
	if err == nil {
		err = failed
	}
	if err != nil {
		return nil, err
	}
	fds := descriptorsOf(oob[:oobn])
	switch {
	case flags&unix.MSG_CTRUNC != 0:
		err = errors.New("the descriptors of a packet do not come: this process has none free; raise its limit")
	case flags&unix.MSG_TRUNC != 0:
		err = errors.New("the peer sent a packet that is too long")
	case t.n == 0:
		err = errors.New("the peer passed a descriptor with a packet without content")
	case t.n != fileSize || t.packet[0] != kindRing && t.packet[0] != kindFile:
		err = errors.New("the peer passed a descriptor with a packet that has none")
	case len(fds) != 1:
		err = errors.New("the peer passed more than one descriptor with a packet")
	default:
		err = checkSeals(fds[0])
	}
	if err != nil {
		list := make([]func(), len(fds))
		for i, fd := range fds {
			list[i] = func() { _ = unix.Close(fd) }
		}
		d.closer.add(peer, list...)
		return nil, err
	}
	return d.maps.add(fds[0], peer)
}

// descriptorsOf returns the descriptors in control data.
func descriptorsOf(oob []byte) (fds []int) {
	list, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil
	}
	for i := range list {
		if more, err := unix.ParseUnixRights(&list[i]); err == nil {
			fds = append(fds, more...)
		}
	}
	return fds
}

// takers are the goroutines that take packets. Each process has few of them, so that one whose memfds
// make them wait leaves the others to the rest.
type takers struct {
	mu     sync.Mutex // guards the fields below
	total  int
	byPeer map[verbs.GID]int
	freed  chan struct{} // closed and replaced when one leaves
}

// enter waits for a place. It returns false when stop is closed.
func (t *takers) enter(peer verbs.GID, stop <-chan struct{}) bool {
	for {
		t.mu.Lock()
		if t.freed == nil {
			t.freed, t.byPeer = make(chan struct{}), make(map[verbs.GID]int)
		}
		if t.total < maxTakers && t.byPeer[peer] < maxTakersOfOne {
			t.total++
			t.byPeer[peer]++
			t.mu.Unlock()
			return true
		}
		freed := t.freed
		t.mu.Unlock()
		select {
		case <-freed:
		case <-stop:
			return false
		}
	}
}

func (t *takers) leave(peer verbs.GID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.total--
	if t.byPeer[peer]--; t.byPeer[peer] == 0 {
		delete(t.byPeer, peer)
	}
	close(t.freed)
	t.freed = make(chan struct{})
}
