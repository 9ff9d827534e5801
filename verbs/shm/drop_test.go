//go:build linux

package shm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/verbs"
)

// TestClosedArenaIsUnmapped: when Close of a region has returned, no peer maps its memfd.
func TestClosedArenaIsUnmapped(t *testing.T) {
	x, y := newPair(t, New(Options{}), 1<<20)
	x.post(x.to(y, 1, verbs.OpWrite, 0, 4096, 0)) // passes the descriptor
	x.ends(1, verbs.StatusOK)
	if n := y.mapped(); n != 2 { // ring and arena
		t.Fatalf("the peer maps %d memfds", n)
	}
	if err := x.mr.Close(); err != nil {
		t.Fatal(err)
	}
	if n := y.mapped(); n != 1 {
		t.Errorf("after Close the peer maps %d memfds", n)
	}
	x.post(verbs.SendWR{ID: 2, Op: verbs.OpWrite, Signaled: true}) // the connection works
	x.ends(2, verbs.StatusOK)
}

// mapped returns how many memfds of peers the device of an end maps.
func (x *testEnd) mapped() int {
	m := &as[*device](x.dev).maps
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.list)
}

// TestPeerThatKeepsAnArenaIsBanned: it loses its connection, and gets no other one.
func TestPeerThatKeepsAnArenaIsBanned(t *testing.T) {
	p := New(Options{})
	p.dropTime = 50 * time.Millisecond
	x, y := newPair(t, p, 1<<20)
	x.post(x.to(y, 1, verbs.OpWrite, 0, 4096, 0))
	x.ends(1, verbs.StatusOK)
	y.qp.drive.Lock() // the peer does nothing any more
	defer y.qp.drive.Unlock()
	start := time.Now()
	if err := x.mr.Close(); err != nil {
		t.Fatal(err)
	}
	if d := time.Since(start); d < p.dropTime {
		t.Errorf("Close took %v, the peer has %v", d, p.dropTime)
	}
	if s, err := x.qp.State(); s != verbs.StateErr {
		t.Errorf("the queue pair is in %v (%v)", s, err)
	}
	if err := x.qp.ToReset(); err != nil {
		t.Fatal(err)
	}
	if err := x.path().Init(x.qp); err != nil {
		t.Fatal(err)
	}
	if err := x.path().Connect(x.qp, x.psn, y.endpoint()); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("connecting again: %v", err)
	}
}

// TestSlowPeerBansNoOther: peers that unmap a memfd in time keep their shared memory, whatever another
// peer of the same region does: nothing at all, or not even reading its socket.
func TestSlowPeerBansNoOther(t *testing.T) {
	for _, full := range []bool{false, true} {
		t.Run(fmt.Sprintf("full socket %v", full), func(t *testing.T) {
			t.Parallel() // it waits for dropTime, which is long enough for the others on a busy machine
			p := New(Options{})
			p.dropTime = 10 * time.Second
			x := newTestEnd(t, p, 1<<20)
			var own []*qp
			var peers []*testEnd
			for range 8 {
				e, y := x.another(), newTestEnd(t, p, 1<<20)
				e.connect(y.endpoint())
				y.connect(e.endpoint())
				e.post(e.to(y, 1, verbs.OpWrite, 0, 4096, 0))
				e.ends(1, verbs.StatusOK)
				own, peers = append(own, e.qp), append(peers, y)
			}
			for _, y := range peers[:2] { // these do nothing any more
				y.qp.drive.Lock()
				defer y.qp.drive.Unlock()
			}
			if full {
				for _, q := range own[:2] {
					wait(t, func() bool { return send(q.live.Load().raw, []byte{kindWake}, -1) != nil })
				}
			}
			if err := x.mr.Close(); err != nil {
				t.Fatal(err)
			}
			for i, y := range peers {
				if got := as[*device](x.dev).banned(as[*device](y.dev).gid) != nil; got != (i < 2) {
					t.Errorf("peer %d is banned: %v", i, got)
				}
			}
		})
	}
}

// another returns an end that shares everything but the queue pair and the completion queue.
func (x *testEnd) another() *testEnd {
	x.t.Helper()
	e := *x
	e.wcs, e.psn = nil, verbs.RandomPSN()
	e.cq = must(x.dev.CreateCQ(verbs.CQConfig{Size: 4 * endDepth}))(x.t)
	made := must(x.pd.CreateQP(verbs.QPConfig{
		SendCQ: e.cq, RecvCQ: e.cq, MaxSend: endDepth, MaxRecv: endDepth, MaxSendSGE: 4, MaxRecvSGE: 4, MaxInline: 64,
	}))(x.t)
	e.qp = as[*qp](made)
	x.t.Cleanup(func() { x.close(e.qp, e.cq) })
	if err := x.path().Init(e.qp); err != nil {
		x.t.Fatal(err)
	}
	return &e
}

// TestBansAreBounded: a peer that comes with a new process each time does not fill the memory. The
// latest stay banned.
func TestBansAreBounded(t *testing.T) {
	var b bans
	gid := func(i int) (g verbs.GID) {
		binary.LittleEndian.PutUint32(g[:], uint32(i)) //nolint:gosec // small
		return g
	}
	for i := range 2 * maxBans {
		b.add(gid(i))
		b.add(gid(i))
	}
	if len(b.list) != maxBans || b.has(gid(maxBans-1)) || !b.has(gid(maxBans)) || !b.has(gid(2*maxBans-1)) {
		t.Errorf("%d bans are kept; the oldest kept is the right one: %v", len(b.list), b.has(gid(maxBans)))
	}
}
