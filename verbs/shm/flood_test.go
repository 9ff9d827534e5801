//go:build linux

package shm

import (
	"bytes"
	"log/slog"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tryst-rdma/tryst/verbs"
)

// flooded is a socket that has a new packet after each read.
type flooded struct {
	syscall.RawConn
	peer  int // descriptor of the other end
	reads int
	fill  bool
}

// Control is what a read without waiting calls.
func (f *flooded) Control(read func(fd uintptr)) error {
	if f.reads++; f.fill && f.reads < 40960 {
		_ = unix.Send(f.peer, []byte{kindWake}, unix.MSG_DONTWAIT)
	}
	return f.RawConn.Control(read)
}

// newFlooded returns a connection of a queue pair to a peer that sends packets without end.
func newFlooded(t *testing.T) (*qp, *connection, *flooded) {
	t.Helper()
	x := newTestEnd(t, New(Options{}), 4096)
	pair := must(unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0))(t)
	t.Cleanup(func() { unix.Close(pair[1]) })
	file := os.NewFile(uintptr(pair[0]), "socket")
	defer file.Close()
	conn := as[*net.UnixConn](must(net.FileConn(file))(t))
	l := newConnection(as[*device](x.dev), conn, must(as[*device](x.dev).newRing(minEntry))(t), verbs.GID{15: 9})
	t.Cleanup(l.free)
	f := &flooded{RawConn: must(conn.SyscallConn())(t), peer: pair[1], fill: true}
	l.raw = f
	return x.qp, l, f
}

// drainAll handles all packets that wait, as run does. It returns false when the connection has ended.
func (q *qp) drainAll(l *connection) bool {
	for {
		q.drive.Lock()
		q.runner = true
		ok := q.drain(l)
		t := l.taking
		q.drive.Unlock()
		if t == nil {
			return ok
		}
		<-t.done
	}
}

// TestFloodOfPacketsEnds: a peer that sends packets without end does not keep the drive lock held.
func TestFloodOfPacketsEnds(t *testing.T) {
	q, l, f := newFlooded(t)
	q.drive.Lock()
	defer q.drive.Unlock()
	if q.drain(l); f.reads > maxPackets {
		t.Errorf("one call has read %d packets, at most %d are right", f.reads, maxPackets)
	}
}

// TestCloseEndsAFlood: Close of a queue pair does not wait until the packets have been read.
func TestCloseEndsAFlood(t *testing.T) {
	q, l, f := newFlooded(t)
	q.stopping.Add(1)
	defer q.stopping.Add(-1)
	q.drive.Lock()
	defer q.drive.Unlock()
	if q.drain(l); f.reads > 1 {
		t.Errorf("%d packets were read while Close waits", f.reads)
	}
}

// TestPacketThatAnotherGoroutineReadsStillWakes: the byte that is to wake the sleeping goroutine of a
// queue pair may be read by a polling goroutine. The peer sends no second one.
func TestPacketThatAnotherGoroutineReadsStillWakes(t *testing.T) {
	q, l, f := newFlooded(t)
	f.fill = false
	if err := unix.Send(f.peer, []byte{kindWake}, 0); err != nil {
		t.Fatal(err)
	}
	q.drive.Lock()
	defer q.drive.Unlock()
	q.runner = false
	if q.drain(l); !q.nudged.Load() {
		t.Error("the sleeping goroutine is not woken")
	}
	q.nudged.Store(false)
	if q.drain(l); q.nudged.Load() {
		t.Error("it is woken without a packet")
	}
}

// TestMemfdThatCannotBePassed: a lasting error is logged once, and tried again. A peer that is gone is
// not tried again.
func TestMemfdThatCannotBePassed(t *testing.T) {
	q, l, f := newFlooded(t)
	var log bytes.Buffer
	q.pd.dev.logger = slog.New(slog.NewTextHandler(&log, nil))
	file := must(newMemfd(4096))(t)
	defer file.free()
	pass := func() (again bool) {
		q.mu.Lock()
		defer q.mu.Unlock()
		defer q.stopTimerLocked()
		q.req.retryAt = time.Time{}
		if q.announceLocked(l, file) {
			t.Error("the memfd was passed")
		}
		return !q.req.retryAt.IsZero()
	}
	if err := unix.Shutdown(f.peer, unix.SHUT_RDWR); err != nil {
		t.Fatal(err)
	}
	if pass() || log.Len() > 0 {
		t.Errorf("a peer that is gone is tried again, or logged: %q", &log)
	}
	l.conn.Close()
	for range 3 {
		if !pass() {
			t.Error("it is not tried again")
		}
	}
	if n := strings.Count(log.String(), "cannot be shared"); n != 1 {
		t.Errorf("it was logged %d times: %s", n, &log)
	}
}
