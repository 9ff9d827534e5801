//go:build linux

package shm

import (
	"fmt"
	"time"

	"github.com/tryst-rdma/tryst/verbs"
)

// drop is a memfd that a peer is to unmap, since its owner closed the region.
type drop struct {
	qp   *qp
	link *link
	id   uint32
	done <-chan struct{}
}

// takeFileBack asks the peer of a queue pair to unmap a memfd; false if the peer does not have it.
// The caller has made sure that no request needs it any more.
func (q *qp) takeFileBack(f *file) (x drop, ok bool) {
	if f == nil {
		return x, false
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.link
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
	return drop{qp: q, link: l, id: f.id, done: done}, true
}

// awaitDrops sends the requests, and waits until they are confirmed or the peers have lost their
// connections.
func (d *device) awaitDrops(list []drop) {
	if len(list) == 0 {
		return
	}
	late := time.NewTimer(d.provider.dropTime)
	defer late.Stop()
	for _, x := range list {
		if x.link.conn == nil {
			x.qp.dropOwn(x.link, x.id)
			continue
		}
		again := time.NewTicker(retryDelay)
		for sent := false; !sent; {
			if sent = x.qp.sendDrop(x.link, x.id); !sent {
				select {
				case <-again.C:
					continue
				case <-late.C:
					late.Reset(0)
				case <-x.link.ended:
				case <-x.link.gone:
				}
				break
			}
		}
		again.Stop()
	}
	again := time.NewTicker(retryDelay)
	defer again.Stop()
	for _, x := range list {
		for done := x.link.conn == nil; !done; {
			select {
			case <-x.done:
				done = true
			case <-x.link.ended:
				done = true
			case <-x.link.gone:
				done = true
			case <-again.C:
				x.qp.drainIfIdle(x.link)
			case <-late.C:
				late.Reset(0) // those after it have had their time, too
				x.qp.banPeer()
				done = true
			}
		}
	}
}

// drainIfIdle reads the socket in place of run, whose goroutine may be in a callback that waits for
// the caller of Close.
func (q *qp) drainIfIdle(l *link) {
	if !q.drive.TryLock() {
		return
	}
	defer q.drive.Unlock()
	if q.live.Load() == l {
		q.runner = false
		q.drain(l)
	}
}

// sendDrop asks the peer to unmap a memfd; false if the socket is full.
func (q *qp) sendDrop(l *link, id uint32) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.link != l {
		return true
	}
	return l.controlLocked(kindDrop, id, -1) == nil
}

// dropOwn unmaps a memfd of a queue pair that is connected to itself.
func (q *qp) dropOwn(l *link, id uint32) {
	q.drive.Lock()
	defer q.drive.Unlock()
	if m, ok := l.selfFiles.LoadAndDelete(id); ok {
		if m, ok := m.(*mapping); ok {
			q.pd.dev.maps.release(m)
		}
	}
}

// banPeer breaks the queue pair, and refuses all later ones to the same process, which kept memory
// that it had to give back.
func (q *qp) banPeer() {
	d := q.pd.dev
	q.mu.Lock()
	defer q.mu.Unlock()
	gid := q.ends.gids[0]
	if q.role == connector {
		gid = q.ends.gids[1]
	}
	d.bans.Store(gid, struct{}{})
	q.violatedLocked(fmt.Errorf("process %v has not unmapped memory of this one within %v", gid, d.provider.dropTime))
}

// banned returns an error if a process may not share memory with this one any more.
func (d *device) banned(gid verbs.GID) error {
	if _, ok := d.bans.Load(gid); !ok {
		return nil
	}
	return fmt.Errorf("process %v kept memory of this one that it had to unmap within %v, so nothing more is shared with it", gid, d.provider.dropTime)
}
