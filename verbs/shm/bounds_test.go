//go:build linux

package shm

import (
	"bytes"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tryst-rdma/tryst/verbs"
)

// TestNumberOfMappingsIsBounded: many small memfds of one process do not use up the mappings of this
// one, and keep no other process from sharing memory.
func TestNumberOfMappingsIsBounded(t *testing.T) {
	m := mappings{limit: maxMappedPeer, populate: readAll}
	add := func(peer byte) (*mapping, error) {
		f := must(newMemfd(4096))(t)
		defer f.free()
		return m.add(must(unix.FcntlInt(uintptr(f.fd), unix.F_DUPFD_CLOEXEC, 0))(t), verbs.GID{15: peer})
	}
	var list []*mapping
	for range maxMappingsOfOne {
		list = append(list, must(add(1))(t))
	}
	if x, err := add(1); err == nil {
		t.Error("one more is mapped")
		list = append(list, x)
	}
	list = append(list, must(add(2))(t))
	for _, x := range list {
		m.release(x)
	}
	if m.count != 0 || len(m.byPeer) != 0 {
		t.Errorf("%d still count, by process %v", m.count, m.byPeer)
	}
}

// TestUnconfirmedMemfdsCount: a peer that passes memfds, takes them back and does not read the
// confirmations gets no more than maxFiles of them noted.
func TestUnconfirmedMemfdsCount(t *testing.T) {
	q, l, peer := newFlooded(t) // the queue pair has another connection, so nothing is confirmed
	peer.fill = false
	f := must(newMemfd(4096))(t)
	defer f.free()
	for n := range uint32(maxFiles + 10) {
		pass, back := fileMessage(kindFile, n), fileMessage(kindDrop, n)
		if err := unix.Sendmsg(peer.peer, pass[:], unix.UnixRights(f.fd), nil, 0); err != nil {
			t.Fatal(err)
		}
		if err := unix.Send(peer.peer, back[:], 0); err != nil {
			t.Fatal(err)
		}
		q.drainAll(l)
	}
	if n := len(l.unsaid); n != maxFiles {
		t.Errorf("%d memfds wait for their confirmation, at most %d may", n, maxFiles)
	}
}

// TestBanIsForThePeerOfTheLink: a queue pair that has another peer by now bans nobody.
func TestBanIsForThePeerOfTheLink(t *testing.T) {
	p := New(Options{})
	x, y := newPair(t, p, 4096)
	wait(t, func() bool { return x.qp.live.Load() != nil })
	old := x.qp.live.Load()
	x.reset()
	z := newTestEnd(t, p, 4096)
	x.connect(z.endpoint())
	z.connect(x.endpoint())
	x.qp.banPeer(old)
	for _, e := range []*testEnd{y, z} {
		if err := as[*device](x.dev).banned(as[*device](e.dev).gid); err != nil {
			t.Error(err)
		}
	}
}

// TestRetryOutlivesAnotherTimer: what waits for room in the socket is tried again, also if the timer
// fires for another reason first.
func TestRetryOutlivesAnotherTimer(t *testing.T) {
	x, _ := newPair(t, New(Options{}), 4096)
	q := x.qp
	q.mu.Lock()
	q.req.retryAt = time.Now().Add(time.Hour)
	q.mu.Unlock()
	q.expire()
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.armed || q.timerAt.After(q.req.retryAt) {
		t.Error("the retry has no timer")
	}
}

// TestBreakEndsALongCopy: the work requests of a queue pair that broke are flushed after the slice that
// is under way, and not after the message.
func TestBreakEndsALongCopy(t *testing.T) {
	p := New(Options{})
	var y *testEnd
	slices := 0
	p.afterSlices(func() {
		if slices++; slices == 1 {
			if err := y.qp.ToErr(); err != nil {
				t.Error(err)
			}
		}
	})
	x := newTestEnd(t, p, 4<<20)
	y = newTestEnd(t, p, 4<<20)
	x.connect(y.endpoint())
	y.connect(x.endpoint())
	y.recv(2, 0, 4<<20)
	x.post(x.to(y, 1, verbs.OpSend, 0, 4<<20, 0))
	y.ends(2, verbs.StatusFlushed)
	if slices != 1 {
		t.Errorf("%d slices were copied", slices)
	}
	if err := x.qp.ToErr(); err != nil {
		t.Fatal(err)
	}
}

// TestLongMessagesAreCopiedInLongSlices: and shorter ones in slices that fit a cache.
func TestLongMessagesAreCopiedInLongSlices(t *testing.T) {
	for n, want := range map[int]int{sliceSize + 1: 2, longMessage - 1: longMessage / sliceSize, longMessage: longMessage / longSlice} {
		p := New(Options{})
		slices := 0
		p.inSlices(func() { slices++ })
		x, y := newTestEnd(t, p, n), newTestEnd(t, p, n)
		x.connect(y.endpoint())
		y.connect(x.endpoint())
		for i := range x.mem {
			x.mem[i] = byte(i ^ i>>8 ^ i>>16)
		}
		y.recv(2, 0, n)
		x.post(x.to(y, 1, verbs.OpSend, 0, n, 0))
		y.ends(2, verbs.StatusOK)
		if !bytes.Equal(x.mem, y.mem) {
			t.Errorf("%d bytes came as others", n)
		}
		if slices != want {
			t.Errorf("%d bytes were copied in %d slices, want %d", n, slices, want)
		}
	}
}

// TestMemoryOfTwoProcessesIsApart: before Linux 5.9 memfds of two processes may have one inode number.
// The memory of one must not stand for that of the other.
func TestMemoryOfTwoProcessesIsApart(t *testing.T) {
	m := mappings{limit: maxMappedPeer, populate: readAll}
	f := must(newMemfd(4096))(t)
	defer f.free()
	var list []*mapping
	for peer := range byte(2) { // one memfd, as two with one number
		fd := must(unix.FcntlInt(uintptr(f.fd), unix.F_DUPFD_CLOEXEC, 0))(t)
		list = append(list, must(m.add(fd, verbs.GID{15: peer}))(t))
	}
	if list[0] == list[1] {
		t.Error("two processes have one mapping")
	}
	for _, x := range list {
		m.release(x)
	}
}
