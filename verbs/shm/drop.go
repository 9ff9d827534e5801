//go:build linux

package shm

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tryst-rdma/tryst/verbs"
)

// drop is a memfd that a peer is to unmap, since its owner closed the region.
type drop struct {
	qp         *qp
	connection *connection
	id         uint32
	done       <-chan struct{}

	asked bool // the request was sent
}

// takeFileBack asks the peer of a queue pair to unmap a memfd; false if the peer does not have it.
// The caller has made sure that no request needs it any more.
func (q *qp) takeFileBack(f *file) (x drop, ok bool) {
	if f == nil {
		return x, false
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.connection
	if l == nil {
		return x, false
	}
	if _, known := l.known[f.id]; !known {
		return x, false
	}
	delete(l.known, f.id)
	done := make(chan struct{})
	if l.conn != nil {
		l.dropping[f.id] = done
	}
	return drop{qp: q, connection: l, id: f.id, done: done}, true
}

// awaitDrops asks the peers to unmap the memfds, and waits until each has confirmed it or has lost
// its connection. Each peer has the whole Provider.dropTime, however slow the others are.
func (d *device) awaitDrops(list []drop) {
	deadline := time.Now().Add(d.provider.dropTime)
	again := time.NewTicker(retryDelay)
	defer again.Stop()
	for {
		now := time.Now()
		open := list[:0]
		for i := range list {
			if !list[i].handle(now, deadline) {
				open = append(open, list[i])
			}
		}
		if list = open; len(list) == 0 {
			return
		}
		select {
		case <-list[0].done:
		case <-list[0].connection.ended:
		case <-list[0].connection.gone:
		case <-again.C:
		}
	}
}

// handle asks the peer if it has not been asked yet, and reports whether nothing is to be awaited any
// more. It bans a peer that is late.
func (x *drop) handle(now, deadline time.Time) (over bool) {
	if x.connection.conn == nil {
		x.qp.dropOwn(x.connection, x.id)
		return true
	}
	if !x.asked {
		x.asked = x.qp.sendDrop(x.connection, x.id)
	}
	// A confirmation that waits in the socket counts, also if this process was stopped until now.
	read := x.qp.drainIfIdle(x.connection)
	select {
	case <-x.done:
		return true
	case <-x.connection.ended:
		return true
	case <-x.connection.gone:
		return true
	default:
	}
	if now.Before(deadline) {
		return false
	}
	// While others hold the drive lock they read the socket, but a peer may keep them busy.
	if !read && now.Sub(deadline) < x.qp.pd.dev.provider.dropTime {
		return false
	}
	x.qp.banPeer(x.connection)
	return true
}

// drainIfIdle reads the socket in place of run, whose goroutine may be in a callback that waits for
// the caller of Close. It returns false if another goroutine works on the connection.
func (q *qp) drainIfIdle(l *connection) bool {
	if !q.drive.TryLock() {
		return false
	}
	defer q.drive.Unlock()
	if q.live.Load() == l {
		q.runner = false
		q.drain(l)
	}
	return true
}

// sendDrop asks the peer to unmap a memfd; false if the socket is full.
func (q *qp) sendDrop(l *connection, id uint32) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.connection != l {
		return true
	}
	return l.controlLocked(kindDrop, id, -1) == nil
}

// dropOwn unmaps a memfd of a queue pair that is connected to itself.
func (q *qp) dropOwn(l *connection, id uint32) {
	q.drive.Lock()
	defer q.drive.Unlock()
	if m, ok := l.selfFiles.LoadAndDelete(id); ok {
		if m, ok := m.(*mapping); ok {
			q.pd.dev.maps.release(m)
		}
	}
}

// banPeer breaks the queue pair, and refuses all later ones to the same process, which kept memory
// that it had to give back. It does nothing if the queue pair has left the connection, and may have another
// peer.
func (q *qp) banPeer(l *connection) {
	d := q.pd.dev
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.connection != l {
		return
	}
	gid := q.ends.gids[0]
	if q.role == connector {
		gid = q.ends.gids[1]
	}
	d.bans.add(gid)
	q.violatedLocked(fmt.Errorf("process %v has not unmapped memory of this one within %v", gid, d.provider.dropTime))
}

// banned returns an error if a process may not share memory with this one any more.
func (d *device) banned(gid verbs.GID) error {
	if !d.bans.has(gid) {
		return nil
	}
	return fmt.Errorf("process %v kept memory of this one that it had to unmap within %v, so nothing more is shared with it", gid, d.provider.dropTime)
}

// bans are the processes that kept memory, by their random GIDs. Beyond maxBans the oldest is
// forgotten: each took 10 s to be banned, and its GID ends with its device.
type bans struct {
	mu   sync.Mutex // guards list
	list []verbs.GID
}

func (b *bans) add(gid verbs.GID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if slices.Contains(b.list, gid) {
		return
	}
	if len(b.list) >= maxBans {
		b.list = slices.Delete(b.list, 0, 1)
	}
	b.list = append(b.list, gid)
}

func (b *bans) has(gid verbs.GID) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Contains(b.list, gid)
}
