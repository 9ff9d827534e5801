//go:build linux

package shm

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tryst-rdma/tryst/verbs"
)

// enter takes the queue pair's lock. It returns false if the queue pair has no longer this connection.
// leave releases the lock in any case.
func (q *qp) enter(l *connection) bool {
	q.mu.Lock()
	q.Calling = q.runner
	return q.connection == l
}

func (q *qp) leave() {
	q.Calling = false
	q.mu.Unlock()
}

// reenter is enter after a copy.
func (q *qp) reenter(l *connection) bool {
	ok := q.enter(l)
	q.copying = false
	q.machine.Flush()
	return ok
}

// step works on both rings. It returns what it saw of the peer's, and whether there may be more
// to do. runner: the caller is the goroutine of run.
func (q *qp) step(l *connection, runner bool) (seen words, moved bool) {
	q.drive.Lock()
	defer q.drive.Unlock()
	return q.stepDriving(l, runner)
}

func (q *qp) stepDriving(l *connection, runner bool) (seen words, moved bool) {
	select {
	case <-l.gone:
		return seen, false
	default:
	}
	q.runner = runner
	if err := guard(func() { seen = readWords(l.peer) }); err != nil {
		if q.enter(l) {
			q.violatedLocked(err)
		}
		q.leave()
		return seen, false
	}
	q.pd.dev.provider.order.onReceive()
	q.seen = seen
	if seen.control != l.taken || len(l.unsaid) > 0 || l.unread {
		if l.taken = seen.control; l.conn != nil {
			l.unread = q.drain(l) && l.unread
			q.confirm(l)
		}
		if l.unread && q.stopping.Load() == 0 {
			// Requests and responses may name memory that is not here yet. taking nudges when it is.
			q.more = l.taking == nil
			return seen, q.more
		}
	}
	moved = q.takeResponses(l, &seen)
	moved = q.takeRequests(l, &seen) || moved
	q.more = moved
	return seen, moved
}

// Drive implements soft.Driven: it works on the rings in place of run, if something has changed and nobody else does it.
func (q *qp) Drive() {
	l := q.live.Load()
	if l == nil || !q.drive.TryLock() {
		return
	}
	defer q.drive.Unlock()
	if q.live.Load() != l {
		return
	}
	changed := true
	l.letWokenRun()
	if guard(func() { changed = readWords(l.peer) != q.seen }) == nil && !changed && !q.more {
		return
	}
	q.stepDriving(l, false)
}

// run works on the rings until the queue pair gives the connection up. It is the only goroutine of a
// connected queue pair. While there is nothing to do it sleeps in a read of the socket.
func (q *qp) run(l *connection) {
	defer l.free()
	for {
		select {
		case <-l.gone:
			return
		default:
		}
		q.nudged.Store(false)
		seen, moved := q.step(l, true)
		q.callBack(l)
		if moved || q.spin(l, &seen) {
			continue
		}
		if !q.sleep(l, &seen) {
			q.finish(l)
			q.peerEnded(l)
			close(l.ended)
			<-l.gone // the peer is gone; the queue pair stays until its owner closes it
			return
		}
	}
}

// finish takes what the peer published before its end of the connection closed.
func (q *qp) finish(l *connection) {
	for range ringEntries / maxBatch {
		_, moved := q.step(l, true)
		q.callBack(l)
		if !moved {
			return
		}
	}
}

// await waits until the packet that is being taken was taken, or until there is something else to do. It
// returns false if none is being taken.
func (q *qp) await(l *connection) bool {
	q.drive.Lock()
	t := l.taking
	q.drive.Unlock()
	if t == nil {
		return false
	}
	select {
	case <-t.done:
	case <-l.nudges:
	case <-l.gone:
	}
	return true
}

// peerEnded ends what waits for the peer, whose process has ended or has closed its queue pair: no
// response comes any more, so nothing waits for its time.
func (q *qp) peerEnded(l *connection) {
	q.drive.Lock() // it guards runner
	q.runner = true
	if q.enter(l) {
		q.refused = true
		if !q.machine.Idle() {
			q.machine.Fail(verbs.StatusRetryExceeded)
		}
	}
	q.leave()
	q.drive.Unlock()
	q.callBack(l)
}

// callBack calls the functions for the events of the last step. Only the goroutine of run calls it.
func (q *qp) callBack(l *connection) {
	q.mu.Lock()
	l.fired = q.TakeFired(l.fired[:0])
	q.mu.Unlock()
	for _, c := range l.fired {
		c.Call()
	}
}

// changed reports whether there is something that the last step has not seen.
func (q *qp) changed(l *connection, seen *words) bool {
	return q.nudged.Load() || readWords(l.peer) != *seen
}

// spin looks for work for a bounded time, unless many others do that already, or a goroutine that
// polls does it.
func (q *qp) spin(l *connection, seen *words) (found bool) {
	d, limit := q.pd.dev, spinTime
	if d.provider.options.Busy {
		limit = busySpinTime
	}
	if d.spinning.Add(1) > int32(max(1, runtime.GOMAXPROCS(0)/2)) { //nolint:gosec // a number of processors
		d.spinning.Add(-1)
		return false
	}
	defer d.spinning.Add(-1)
	_ = guard(func() { // a fault is found by the next step
		for start := time.Now(); q.pollers.Load() == 0 && time.Since(start) < limit; runtime.Gosched() {
			for range spinLoads {
				if q.changed(l, seen) {
					found = true
					return
				}
			}
		}
	})
	return found
}

// sleep waits until the peer wakes this side, or nudge does. First it says that it sleeps, and
// looks again: a peer that publishes something afterwards sees that it must wake this side
// (sleep_test.go searches all interleavings). It returns false when the connection has ended.
func (q *qp) sleep(l *connection, seen *words) bool {
	q.sleeps(l, true)
	found := false
	if err := guard(func() { found = q.changed(l, seen) }); err != nil {
		found = true // the next step breaks the queue pair
	}
	ok := true
	if !found {
		ok = q.receive(l)
	}
	q.sleeps(l, false)
	return ok
}

// receive waits for packets of the peer, or a nudge, and handles them. It returns false when the
// connection has ended.
func (q *qp) receive(l *connection) bool {
	if l.conn == nil {
		select {
		case <-l.self:
			return true
		case <-l.gone:
			return false
		}
	}
	if q.await(l) {
		return true
	}
	// Only the holder of drive reads packets, so that they are handled in order. Here the goroutine
	// only waits for them.
	err := l.raw.Read(l.readable)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		_ = l.conn.SetReadDeadline(time.Time{}) // a closed connection ends the next read
		return true
	}
	if err != nil {
		return false
	}
	q.drive.Lock()
	defer q.drive.Unlock()
	q.runner = true
	return q.drain(l)
}

// handlePacket handles a packet of the peer, with the memfd that came with it. The caller holds drive. A
// wrong packet breaks the queue pair.
func (q *qp) handlePacket(l *connection, b []byte, file *mapping) {
	err := func() error {
		if len(b) == 1 && b[0] == kindWake {
			return nil
		}
		if len(b) != fileSize {
			return errors.New("a packet of the peer has a wrong length")
		}
		id := binary.LittleEndian.Uint32(b[4:])
		switch b[0] {
		case kindFile:
			// A memfd counts until the peer was told that it is unmapped.
			if file == nil || l.files[id] != nil || len(l.files)+len(l.unsaid) >= maxFiles {
				return errors.New("the peer passes no memfd, one twice, or too many")
			}
			l.files[id], file = file, nil
			return nil
		case kindDrop:
			m := l.files[id]
			if m == nil {
				return errors.New("the peer wants back a memfd that it did not pass")
			}
			delete(l.files, id)
			q.pd.dev.maps.release(m)
			l.unsaid = append(l.unsaid, id)
			q.confirm(l)
			return nil
		case kindDropped:
			q.mu.Lock()
			defer q.mu.Unlock()
			done := l.dropping[id]
			if done == nil {
				return errors.New("the peer gives back a memfd that it was not asked for")
			}
			delete(l.dropping, id)
			close(done)
			return nil
		}
		return errors.New("the peer sent a packet of an unknown kind")
	}()
	if file != nil {
		q.pd.dev.maps.release(file)
	}
	if err != nil {
		q.violated(l, err)
	}
}

// violated breaks the queue pair if it still has the connection. The caller holds drive.
func (q *qp) violated(l *connection, err error) {
	if q.enter(l) {
		q.violatedLocked(err)
	}
	q.leave()
}

// fileOf returns the mapping of a memfd of the peer; nil if the peer has not passed it. Its packet was
// sent before the request that names it, and stepDriving has read it. The caller holds drive.
func (q *qp) fileOf(l *connection, id uint32) *mapping {
	if l.conn == nil {
		m, _ := l.selfFiles.Load(id)
		x, _ := m.(*mapping)
		return x
	}
	return l.files[id]
}

// drain handles the packets that wait in the socket, at most maxPackets of them, and stops at one with a
// descriptor until that was taken. It sets unread if some may be left, and returns false when the
// connection has ended. It never blocks. The caller holds drive, and has set runner.
func (q *qp) drain(l *connection) bool {
	select {
	case <-l.gone:
		return false
	default:
	}
	l.unread = true
	for range maxPackets {
		if q.stopping.Load() > 0 {
			return true
		}
		ok, err := q.takePacket(l)
		switch {
		case errors.Is(err, unix.EAGAIN):
			l.unread = false
			return true
		case errors.Is(err, unix.ECONNRESET) || errors.Is(err, net.ErrClosed) || errors.Is(err, io.EOF):
			return false
		case err != nil:
			q.violated(l, err)
			return false
		case !ok:
			return true
		}
		// The peer wakes this side once for each sleep, and not at all if the socket is full: any packet
		// may be the one that run, which still sleeps, waits for.
		if !q.runner {
			q.nudge(l)
		}
	}
	return true
}

// takePacket handles the next packet. It returns false if that is still being taken.
func (q *qp) takePacket(l *connection) (ok bool, err error) {
	if t := l.taking; t != nil {
		select {
		case <-t.done:
		default:
			return false, nil
		}
		l.taking = nil
		if t.err != nil {
			return false, t.err
		}
		q.handlePacket(l, t.packet[:t.n], t.file)
		return true, nil
	}
	n := 0
	// Not Read, which a nudge ends.
	if failed := l.raw.Control(func(fd uintptr) { n, err = next(int(fd), l.packet[:]) }); failed != nil {
		err = failed
	}
	switch {
	case errors.Is(err, errRights):
		l.taking = q.pd.dev.take(l.raw, l.peerGID, func() { q.nudge(l) })
		return false, nil
	case err != nil:
		return false, err
	case n == 0:
		return false, io.EOF
	}
	q.handlePacket(l, l.packet[:n], nil)
	return true, nil
}

// confirm tells the peer which of its memfds have been unmapped. The caller holds drive.
func (q *qp) confirm(l *connection) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(l.unsaid) > 0 && q.connection == l {
		if err := l.controlLocked(kindDropped, l.unsaid[0], -1); err != nil {
			q.resp.blocked = true // the timer tries again
			q.armLocked(time.Now().Add(retryDelay))
			return
		}
		l.unsaid = l.unsaid[1:]
	}
}
