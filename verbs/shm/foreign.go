//go:build linux

package shm

import (
	"context"
	"errors"
	"net"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tryst-rdma/tryst/verbs"
)

// Descriptors of others. The last close of a descriptor may block for as long as its sender likes: of a
// TCP socket with SO_LINGER, of a file whose file system is a process (FUSE), and of a unix socket in
// whose queue such descriptors wait. The kernel closes descriptors also when it drops a packet: in
// recvmsg(2) without space for them, and in close(2) of a socket with packets that nobody has read.
// So nothing that others wait for makes such a call:
//
//   - Before the proof the sockets take no descriptors, where the kernel has SO_PASSRIGHTS (passRights).
//   - A packet is looked at before it is taken (peek). One with descriptors is taken by a goroutine of its
//     own (taking), and only after the proof.
//   - A connection is closed at once if no descriptor waits in it (withoutRights). Else the closer does it.
//   - What a peer passed and is no memfd is closed by the closer.

// passRights lets a socket take descriptors, or makes senders fail with EPERM. Accepted sockets inherit
// it from the moment of their connection on, so a listener sets it before listen(2). Before Linux 6.16
// it does nothing.
func (d *device) passRights(fd uintptr, on bool) error {
	err := d.provider.setRights(fd, on)
	if errors.Is(err, unix.ENOPROTOOPT) {
		return nil
	}
	return err
}

func setPassRights(fd uintptr, on bool) error {
	n := 0
	if on {
		n = 1
	}
	return unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PASSRIGHTS, n)
}

// noRights is the function that prepares a socket before it listens or connects.
func (d *device) noRights(_, _ string, raw syscall.RawConn) error {
	var failed error
	if err := raw.Control(func(fd uintptr) { failed = d.passRights(fd, false) }); err != nil {
		return err
	}
	return failed
}

// allowRights is called when the peer has proved itself, before this side sends the welcome.
func (d *device) allowRights(raw syscall.RawConn) error {
	var failed error
	if err := raw.Control(func(fd uintptr) { failed = d.passRights(fd, true) }); err != nil {
		return err
	}
	return failed
}

// errRights is the error of a packet with descriptors where none may come. The packet stays in the
// socket.
var errRights = errors.New("the packet carries descriptors")

// next reads a packet without waiting: EAGAIN means that there is none. A packet with descriptors stays
// in the socket, and the error is errRights. Only one goroutine at a time reads a socket.
func next(fd int, buf []byte) (n int, err error) {
	_, _, flags, err := recvmsg(fd, buf, nil, unix.MSG_PEEK)
	if err != nil {
		return 0, err
	}
	// Nothing asks for other control data, so what has no space is descriptors. Those of a packet that
	// stays are only counted (unix_peek_fds, scm_destroy in the kernel's net/unix and net/core).
	if flags&unix.MSG_CTRUNC != 0 {
		return 0, errRights
	}
	if n, _, flags, err = recvmsg(fd, buf, nil, 0); err != nil {
		return 0, err
	}
	if flags&unix.MSG_TRUNC != 0 {
		return 0, errors.New("the peer sent a packet that is too long")
	}
	return n, nil
}

// recvmsg is recvmsg(2) without waiting.
func recvmsg(fd int, buf, oob []byte, flags int) (n, oobn, got int, err error) {
	for {
		n, oobn, got, _, err = unix.Recvmsg(fd, buf, oob, flags|unix.MSG_DONTWAIT|unix.MSG_CMSG_CLOEXEC)
		if err != unix.EINTR {
			return n, oobn, got, err
		}
	}
}

// receive waits for a packet, and returns errRights for one with descriptors.
func receive(raw syscall.RawConn, buf []byte) (n int, err error) {
	var failed error
	err = raw.Read(func(fd uintptr) bool {
		n, failed = next(int(fd), buf)
		return !errors.Is(failed, unix.EAGAIN)
	})
	if err == nil {
		err = failed
	}
	return n, err
}

// withoutRights ends a connection in both directions, and reports whether no descriptor waits in it: then
// a close does not block. Nothing can arrive any more.
func withoutRights(fd int) bool {
	_ = unix.Shutdown(fd, unix.SHUT_RDWR) // an error: the peer is gone, which is as good
	// The sender's credentials tell an empty packet from the end, and leave no space for descriptors.
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PASSCRED, 1) != nil {
		return false
	}
	var b [1]byte
	oob := make([]byte, unix.CmsgSpace(unix.SizeofUcred))
	for range maxUnread {
		_, oobn, flags, err := recvmsg(fd, b[:], oob, unix.MSG_PEEK)
		switch {
		case errors.Is(err, unix.ECONNRESET): // said once, packets may wait all the same
			continue
		case err != nil:
			return false
		case oobn == 0:
			return true
		case flags&unix.MSG_CTRUNC != 0:
			return false
		}
		if _, _, _, err = recvmsg(fd, b[:], oob, 0); err != nil {
			return false
		}
	}
	return false
}

// hangUp closes a connection. It does not block. owner is the process at the other end if it has proved
// itself, else zero.
func (d *device) hangUp(c *net.UnixConn, owner verbs.GID) {
	raw, err := c.SyscallConn()
	clean := false
	if err == nil {
		err = raw.Control(func(fd uintptr) { clean = withoutRights(int(fd)) })
	}
	if clean || err != nil { // an error: it is closed
		_ = c.Close()
		return
	}
	d.closer.add(owner, func() { _ = c.Close() })
}

// hangUpFD is hangUp for a descriptor of a stranger.
func (d *device) hangUpFD(fd int) {
	if withoutRights(fd) {
		_ = unix.Close(fd)
		return
	}
	d.closer.add(verbs.GID{}, func() { _ = unix.Close(fd) })
}

// shutDown ends a connection in both directions, so that pending reads and writes return. Its descriptor
// stays open.
func shutDown(c *net.UnixConn) {
	if raw, err := c.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { _ = unix.Shutdown(int(fd), unix.SHUT_RDWR) }) // an error: it is closed already
	}
}

// stopListening closes a listener, and the connections in its queue. It does not block.
func (d *device) stopListening(l *net.UnixListener) {
	raw, err := l.SyscallConn()
	clean := false
	if err == nil {
		_ = raw.Control(func(fd uintptr) {
			_ = unix.Shutdown(int(fd), unix.SHUT_RD) // nobody connects any more
			for {
				c, _, err := unix.Accept4(int(fd), unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
				if err != nil {
					clean = errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EAGAIN) // none is left
					return
				}
				d.hangUpFD(c)
			}
		})
	}
	if clean || err != nil {
		_ = l.Close()
		return
	}
	d.closer.add(verbs.GID{}, func() { _ = l.Close() })
}

// closer closes what may block, in at most maxClosers goroutines. Close of the device does not wait for
// them: they end when the senders of the descriptors let go, at the latest with the process.
type closer struct {
	provider *Provider // counts, and has the logger

	mu      sync.Mutex // guards the fields below
	queue   []closing
	workers int
	total   int               // of the queue, and of what is being closed
	byOwner map[verbs.GID]int // the same; zero for all that have proved nothing
	room    chan struct{}     // closed when strangers have room again; nil while they have
	warned  [2]time.Time      // of strangers, and that no others are accepted
}

// closing is a close that may block.
type closing struct {
	owner verbs.GID
	close func()
}

func (c *closer) add(owner verbs.GID, list ...func()) {
	if len(list) == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byOwner == nil {
		c.byOwner = make(map[verbs.GID]int)
	}
	for _, f := range list {
		c.queue = append(c.queue, closing{owner, f})
	}
	c.total += len(list)
	c.provider.closing.Add(int64(len(list)))
	c.byOwner[owner] += len(list)
	for ; c.workers < maxClosers && c.workers < c.total; c.workers++ {
		go c.work() // ends when the queue is empty
	}
	if c.byOwner[verbs.GID{}] >= maxToClose && c.room == nil {
		c.room = make(chan struct{})
	}
	if owner != (verbs.GID{}) {
		return // a peer's descriptors may be on their way when a connection ends
	}
	c.provider.refused.Add(uint64(len(list)))
	what, text := 0, "shm: a process passed descriptors without a proof"
	if c.room != nil {
		what, text = 1, "shm: so many connections of strangers hold descriptors that no others are accepted until some are closed"
	}
	if now := time.Now(); now.Sub(c.warned[what]) >= warnInterval {
		c.warned[what] = now
		c.provider.options.Logger.Warn(text, "open", c.byOwner[owner])
	}
}

func (c *closer) work() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.queue) > 0 {
		x := c.queue[0]
		c.queue = c.queue[1:]
		c.mu.Unlock()
		x.close()
		c.mu.Lock()
		c.total--
		c.provider.closing.Add(-1)
		if c.byOwner[x.owner]--; c.byOwner[x.owner] == 0 {
			delete(c.byOwner, x.owner)
		}
		if c.room != nil && c.byOwner[verbs.GID{}] < maxToClose {
			close(c.room)
			c.room = nil
		}
	}
	c.workers--
}

// awaitRoom waits until more strangers may be accepted. It returns false if the device was closed.
func (c *closer) awaitRoom(ctx context.Context) bool {
	for {
		c.mu.Lock()
		room := c.room
		c.mu.Unlock()
		if room == nil {
			return ctx.Err() == nil
		}
		select {
		case <-room:
		case <-ctx.Done():
			return false
		}
	}
}

// tooMany reports whether a process, or all together, left so much to close that it gets no other
// connection.
func (c *closer) tooMany(owner verbs.GID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.byOwner[owner] >= maxToCloseOfOne || c.total-c.byOwner[verbs.GID{}] >= maxToClose
}
