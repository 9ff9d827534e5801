//go:build linux

package shm

import (
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/internal/soft"
)

// connection is the connection of two queue pairs: their rings and the socket between them. The
// goroutine of run owns its memory and frees it when the connection has been taken from its queue pair.
type connection struct {
	dev  *device
	conn *net.UnixConn   // nil if the queue pair is connected to itself
	raw  syscall.RawConn // of conn
	self chan struct{}   // wakes run instead of a socket; one token
	gone chan struct{}   // closed when the connection was taken from its queue pair
	// nudges holds a token when run is to look at the rings for a reason on this side.
	nudges chan struct{}
	fired  []*soft.CQ // space for callBack

	peerGID   verbs.GID
	own       *file    // ring of this side
	ring      *mapping // of the peer; nil if the queue pair is connected to itself
	peer      []byte   // memory of the peer's ring
	entrySize int      // of the peer's ring

	files map[uint32]*mapping // of the peer; guarded by the queue pair's drive lock
	// selfFiles takes the place of files if the queue pair is connected to itself.
	selfFiles sync.Map
	known     map[uint32]struct{} // own memfds that the peer got; guarded by the queue pair's lock
	// dropping has a channel for each memfd that the peer is to unmap, closed when it has. Guarded
	// like known.
	dropping map[uint32]chan struct{}
	sent     uint64        // own atControl; guarded like known
	taken    uint64        // the peer's atControl whose packets were read; guarded by drive
	unsaid   []uint32      // memfds whose unmapping could not be confirmed yet; guarded by drive
	taking   *taking       // takes the packet at the head of the socket; nil for none; guarded by drive
	unread   bool          // packets may wait in the socket; guarded by drive
	ended    chan struct{} // closed when the peer has closed the connection
	failing  bool          // a memfd could not be passed, and that was logged; guarded like known
	bounce   *file         // chunks for memory that is no memfd, guarded like known; nil until needed

	packet   [maxPacket]byte       // space for the packet that is read; guarded by drive
	readable func(fd uintptr) bool // reports whether a packet waits, or the peer has closed the socket

	bell   bell
	rang   atomic.Int32 // polls until the peer, which was woken, gets the processor of this side
	rung   uint64       // the peer's atAsleep for which it was woken; guarded by the queue pair's lock
	wakeFn func(fd uintptr) bool
}

func newConnection(d *device, conn *net.UnixConn, own *file, peer verbs.GID) *connection {
	l := &connection{dev: d, conn: conn, own: own, peerGID: peer, gone: make(chan struct{}), ended: make(chan struct{}), nudges: make(chan struct{}, 1), files: make(map[uint32]*mapping), known: make(map[uint32]struct{}), dropping: make(map[uint32]chan struct{})}
	l.bell.word = word(own.mem, atAsleep)
	packet := []byte{kindWake}
	fds := make([]unix.PollFd, 1)
	l.readable = func(fd uintptr) bool {
		fds[0] = unix.PollFd{Fd: int32(fd), Events: unix.POLLIN} //nolint:gosec // a descriptor
		n, err := unix.Poll(fds, 0)
		return n > 0 || err != nil && err != unix.EINTR
	}
	l.wakeFn = func(fd uintptr) bool {
		// A full socket is as good: it wakes the peer. A closed one is noticed by run.
		_ = syscall.Sendto(int(fd), packet, syscall.MSG_DONTWAIT|syscall.MSG_NOSIGNAL, nil)
		return true
	}
	return l
}

// controlLocked sends a packet that names a memfd, with its descriptor unless fd is negative.
// EAGAIN means that the socket is full.
func (l *connection) controlLocked(kind byte, id uint32, fd int) error {
	m := fileMessage(kind, id)
	if err := send(l.raw, m[:], fd); err != nil {
		return err
	}
	l.sent++
	word(l.own.mem, atControl).Store(l.sent)
	return nil
}

// mustWakeLocked returns the connection if the peer sleeps and has not been woken yet, else nil. The
// caller has published something before.
func (l *connection) mustWakeLocked() *connection {
	n := uint64(0)
	if err := guard(func() { n = word(l.peer, atAsleep).Load() }); err != nil {
		return nil // the next step finds the fault
	}
	if n%2 == 0 || n == l.rung {
		return nil
	}
	l.rung = n
	return l
}

// wake wakes the peer. It does nothing on a nil connection.
func (l *connection) wake() {
	switch {
	case l == nil:
	case l.conn == nil:
		select {
		case l.self <- struct{}{}:
		default:
		}
	default:
		l.rang.Store(wokenPolls)
		_ = l.raw.Write(l.wakeFn) // a closed connection wakes nobody
	}
}

// letWokenRun gives the processor up, some polls after the peer was woken: the kernel may have put its
// thread on the processor of the one that woke it, where it would wait until that sleeps.
func (l *connection) letWokenRun() {
	if l.rang.Load() > 0 && l.rang.Add(-1) == 0 {
		soft.Yield()
	}
}

// nudge makes the goroutine of run look at the rings again.
func (q *qp) nudge(l *connection) {
	q.nudged.Store(true)
	select {
	case l.nudges <- struct{}{}:
	default:
	}
	if l.conn == nil {
		l.wake()
		return
	}
	_ = l.conn.SetReadDeadline(time.Unix(1, 0)) // a closed connection has no run to nudge
}

// detach makes the connection unusable. Its memory and its socket stay until run has ended.
func (l *connection) detach() {
	close(l.gone)
	if l.conn != nil {
		shutDown(l.conn)
	} else {
		l.wake()
	}
}

// free releases the memory. Nobody uses the connection any more, except for its bell.
func (l *connection) free() {
	l.bell.end()
	hangUp := func() {
		if l.conn != nil {
			l.dev.hangUp(l.conn, l.peerGID)
		}
	}
	if l.taking != nil {
		l.taking.abandon(l.dev, hangUp)
	} else {
		hangUp()
	}
	if l.ring != nil {
		l.dev.maps.release(l.ring)
	}
	for _, m := range l.files {
		l.dev.maps.release(m)
	}
	l.files = nil
	l.selfFiles.Range(func(_, m any) bool {
		if m, ok := m.(*mapping); ok {
			l.dev.maps.release(m)
		}
		return true
	})
	l.own.free()
	l.bounce.free()
}
