//go:build linux

package shm

import (
	"fmt"

	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/internal/rc"
	"github.com/tryst-rdma/tryst/verbs/internal/soft"
)

// responder is what rings add to the half of a queue pair that executes the requests of the peer. The
// fields that a copy uses outside of the queue pair's lock are guarded by drive.
type responder struct {
	psn      verbs.PSN // of the peer
	executed uint64    // parts of the peer
	seen     uint64    // the highest number of parts that the peer said it had posted
	stalled  bool      // there is no receive for the next part
	told     bool      // and the peer knows
	deaf     bool      // what the peer posts has no effect any more
	blocked  bool      // the socket is full; the timer tries again
	// reads has what the response in each slot lets the peer read; zero for nothing.
	reads [ringEntries]answered

	entry [maxEntry]byte // copy of the part that is executed
	// readChunk says for each chunk of READ responses up to which number of consumed responses
	// it is in use.
	readChunk [readChunks]uint64
	copied    uint64
	buffers   [4][]byte // space for copySlice
}

// answered is the memfd of a registered region that a response to a READ names, and the key of the READ.
type answered struct {
	file uint32
	key  verbs.RKey
}

// outcome is how a copy ended.
type outcome uint8

const (
	copied    outcome = iota
	takenBack         // the poster takes its memory back, or this side ends: as if nothing had come
	misplaced         // the memory of the receive, or that the peer names, may not be written
	badSource         // the peer's ranges are outside of its memfds, or cannot be read
)

// takeRequests executes requests of the peer. The caller holds drive.
func (q *qp) takeRequests(l *connection, s *words) (moved bool) {
	batch := maxBatch
	if !q.runner {
		batch = pollBatch
	}
	for range batch {
		if !q.enter(l) {
			q.leave()
			return moved
		}
		wake, more := q.takeRequestLocked(l, s)
		if wake {
			x := l.mustWakeLocked()
			q.leave()
			x.wake()
		} else {
			q.leave()
		}
		moved = moved || more
		if !more {
			return moved
		}
	}
	return moved
}

// takeRequestLocked executes the next request. wake means that the peer must hear of it.
func (q *qp) takeRequestLocked(l *connection, s *words) (wake, more bool) {
	p := &q.resp
	if !q.machine.IsUp() || p.deaf {
		return false, false
	}
	if s.posted < p.seen || s.posted-p.executed > ringEntries {
		q.violatedLocked(fmt.Errorf("the peer has posted %d requests, %d before, and %d were executed", s.posted, p.seen, p.executed))
		return false, false
	}
	p.seen = s.posted
	if p.executed == s.posted {
		return false, false
	}
	b := p.entry[:l.entrySize]
	if err := guardedCopy(b, l.peer[entriesAt+int(p.executed%ringEntries)*l.entrySize:][:l.entrySize]); err != nil { //nolint:gosec // less than ringEntries
		q.violatedLocked(err)
		return false, false
	}
	e, err := parseEntry(b)
	switch {
	case e.psn != uint32(p.psn+verbs.PSN(p.executed&psnMask))&psnMask:
		p.deaf = true // as packets with an unexpected PSN, which have no effect
		return false, false
	case e.number != p.executed:
		q.violatedLocked(fmt.Errorf("request %d is in the place of %d", e.number, p.executed))
		return false, false
	case err != nil:
		q.pd.dev.breach(q, err)
		q.rejectLocked(l, verbs.StatusRemoteInvalidRequest)
		return true, false
	}
	g, first := q.machine.Message(), e.flags&flagFirst != 0
	follows := g.Active && e.op == g.Op && !first && e.offset == g.Got && e.total == g.Total
	if e.op < verbs.OpRead && (g.Active || !first) && !follows || e.op >= verbs.OpRead && g.Active {
		q.rejectLocked(l, verbs.StatusRemoteInvalidRequest)
		return true, false
	}
	if follows {
		if g.Op >= verbs.OpWrite && (g.Addr != e.addr || g.RKey != e.rkey) {
			q.rejectLocked(l, verbs.StatusRemoteInvalidRequest)
			return true, false
		}
		return q.executeMessage(l, &e, b)
	}
	r := rc.Request{Op: e.op, Total: e.total, Addr: e.addr, RKey: e.rkey, Imm: e.imm, Solicited: e.flags&flagSolicited != 0}
	if e.op > verbs.OpRead {
		r.Total = 8 // the entry has an operand there
	}
	status, ready := q.machine.Begin(&r, 0)
	if !ready {
		q.stallLocked(l)
		return true, false
	}
	q.resumeLocked(l)
	switch {
	case status != verbs.StatusOK:
		q.rejectLocked(l, status)
		return true, false
	case e.op < verbs.OpRead:
		return q.executeMessage(l, &e, b)
	case e.op == verbs.OpRead:
		return q.executeRead(l, &e, s)
	}
	return q.executeAtomic(l, &e)
}

// executeMessage executes a part of a SEND or WRITE.
func (q *qp) executeMessage(l *connection, e *entry, b []byte) (wake, more bool) {
	place := q.machine.Place()
	result, ok := q.copyUnlocked(l, e, b, &place)
	switch {
	case !ok:
		return false, false
	case result == takenBack:
		q.resp.deaf = true
		return false, false
	case result == misplaced:
		q.rejectLocked(l, q.machine.Misplaced())
		return true, false
	case result != copied:
		q.rejectLocked(l, verbs.StatusRemoteInvalidRequest)
		return true, false
	}
	q.machine.Placed(uint64(e.length))
	q.executedLocked(l)
	return true, true
}

// executeRead tells the peer where it finds the content.
func (q *qp) executeRead(l *connection, e *entry, s *words) (wake, more bool) {
	p, k := &q.resp, q.pd.dev.Keys
	a := response{number: e.number, length: e.length}
	file := uint32(0)
	if e.total > 0 {
		k.Mu.RLock()
		defer k.Mu.RUnlock()
		m, at := k.FindLocked(&q.pd.Domain, q, e.addr, e.total, e.rkey, verbs.AccessRemoteRead)
		if m == nil {
			q.rejectLocked(l, verbs.StatusRemoteAccess)
			return true, false
		}
		at += e.offset
		if b := backingOf(m); b != nil {
			file = b.file.id
			a.file, a.value = file, b.offset+at
			if !q.announceLocked(l, b.file) {
				p.blocked = true
				return false, false
			}
		} else {
			chunk := 0
			for ; chunk < readChunks && s.consumed < p.readChunk[chunk]; chunk++ {
			}
			if chunk == readChunks {
				return false, false // a response that is read frees one, and the peer says so
			}
			mem, id, ok := q.bounceLocked(l, sendChunks+chunk)
			if !ok {
				q.rejectLocked(l, verbs.StatusRemoteOperation)
				return true, false
			}
			if !q.announceLocked(l, l.bounce) {
				p.blocked = true
				return false, false
			}
			copy(mem, m.BytesLocked(at, uint64(e.length)))
			p.readChunk[chunk] = e.number + 1
			a.file, a.value = id, uint64(sendChunks+chunk)*chunkSize //nolint:gosec // not negative
		}
	}
	p.reads[e.number%ringEntries] = answered{file: file, key: e.rkey}
	a.put(l.own.mem[responsesAt+e.number%ringEntries*responseSize:])
	q.executedLocked(l)
	return true, true
}

// executeAtomic executes an atomic and gives the old value to the peer.
func (q *qp) executeAtomic(l *connection, e *entry) (wake, more bool) {
	k := q.pd.dev.Keys
	k.Mu.RLock()
	defer k.Mu.RUnlock()
	mem, ok := k.GrantedLocked(&q.pd.Domain, q, e.addr, 8, e.rkey, verbs.AccessRemoteAtomic)
	if !ok {
		q.rejectLocked(l, verbs.StatusRemoteAccess)
		return true, false
	}
	old := k.FetchAndUpdate(mem, func(old uint64) uint64 { return rc.Atomic(e.op, old, e.total, e.offset) })
	q.resp.reads[e.number%ringEntries] = answered{}
	a := response{number: e.number, value: old, length: 8}
	a.put(l.own.mem[responsesAt+e.number%ringEntries*responseSize:])
	q.executedLocked(l)
	return true, true
}

// executedLocked tells the peer that the next part has been executed.
func (q *qp) executedLocked(l *connection) {
	q.resp.executed++
	q.pd.dev.provider.order.onSend()
	word(l.own.mem, atDone).Store(q.resp.executed)
}

// resumeLocked tells the peer that its request no longer waits for a receive.
func (q *qp) resumeLocked(l *connection) {
	if q.resp.told {
		q.resp.told = false
		word(l.own.mem, atNoReceive).Store(0)
	}
}

func (q *qp) stallLocked(l *connection) {
	q.resp.stalled, q.resp.told = true, true
	word(l.own.mem, atNoReceive).Store(q.resp.executed + 1)
}

// rejectLocked fails the current request of the peer and breaks the queue pair (specification,
// volume 1, 9.9.3.1, class C).
func (q *qp) rejectLocked(l *connection, status verbs.Status) {
	q.pd.dev.provider.order.onSend()
	word(l.own.mem, atFailed).Store((q.resp.executed+1)<<8 | uint64(status))
	q.machine.Break()
	q.machine.Refused(status)
}

// copyUnlocked copies the content of a part to its place, in slices, without the queue pair's lock,
// which the caller holds before and after. ok is false if the queue pair broke or lost its connection in the
// meantime.
func (q *qp) copyUnlocked(l *connection, e *entry, b []byte, place *rc.Place) (result outcome, ok bool) {
	q.copying = true
	q.leave()
	result = q.copyPart(l, e, b, place)
	if !q.reenter(l) || !q.machine.IsUp() {
		return takenBack, false
	}
	return result, true
}

func (q *qp) copyPart(l *connection, e *entry, b []byte, place *rc.Place) outcome {
	count := int(e.ranges)
	if e.flags&flagInline != 0 {
		count = 1
	}
	for i := range count {
		var src []byte
		if e.flags&flagInline != 0 {
			src = b[entryHeader:][:e.length]
		} else {
			c := parseRange(b, i)
			m := q.fileOf(l, c.file)
			if m == nil && q.ending(l) {
				return takenBack
			}
			if m == nil || c.offset > uint64(len(m.mem)) || uint64(c.length) > uint64(len(m.mem))-c.offset {
				return badSource
			}
			src = m.mem[c.offset:][:c.length]
		}
		for len(src) > 0 {
			n := min(len(src), sliceOf(e.total))
			if r := q.copySlice(src[:n], place); r != copied {
				return r
			}
			src, place.Off = src[n:], place.Off+uint64(n) //nolint:gosec // not negative
			if !q.alive(l) || q.ending(l) {
				return takenBack
			}
			if len(src) > 0 {
				q.resp.copied++
				word(l.own.mem, atCopied).Store(q.resp.copied)
			}
		}
	}
	if !q.alive(l) {
		return takenBack
	}
	return copied
}

// ending reports whether the queue pair broke or is about to lose the connection, so that a copy need not
// come to its end.
func (q *qp) ending(l *connection) bool {
	return q.stopping.Load() > 0 || word(l.own.mem, atEpoch).Load() != epochAlive
}

// sliceOf returns how much of a message of total bytes is copied at once.
func sliceOf(total uint64) int {
	if total >= longMessage {
		return longSlice
	}
	return sliceSize
}

func (q *qp) copySlice(src []byte, place *rc.Place) outcome {
	k := q.pd.dev.Keys
	k.Mu.RLock()
	defer k.Mu.RUnlock()
	buffers, ok := q.findLocked(k, place, uint64(len(src)))
	if !ok {
		return misplaced
	}
	for _, to := range buffers {
		if err := q.pd.dev.provider.copy(to, src[:len(to)]); err != nil {
			return badSource
		}
		src = src[len(to):]
	}
	return copied
}

// findLocked returns the memory for n bytes at a place. The whole range of a WRITE is checked, since
// the region may have been closed since the last slice. The caller holds Keys.Mu.
func (q *qp) findLocked(k *soft.Keys, p *rc.Place, n uint64) (buffers [][]byte, ok bool) {
	buffers = q.resp.buffers[:0]
	if p.Kind == rc.PlaceRecv {
		return k.GatherLocked(&q.pd.Domain, p.SGL, p.Off, n, true, buffers)
	}
	m, from := k.FindLocked(&q.pd.Domain, q, p.Addr, p.Total, p.RKey, verbs.AccessRemoteWrite)
	if m == nil {
		return buffers, false
	}
	return append(buffers, m.BytesLocked(from+p.Off, n)), true
}

// alive reports whether the memory that the peer posted is still the peer's to give. It is read
// after each copy: if it is set then, the content was copied before the peer took it back.
func (q *qp) alive(l *connection) bool {
	q.barrier.order() // the loads of the copy come before the load of the epoch
	epoch, err := q.pd.dev.provider.peerEpoch(l)
	return err == nil && epoch == epochAlive
}

// peerEpoch reads the epoch of the peer.
func (l *connection) peerEpoch() (epoch uint64, err error) {
	err = guard(func() { epoch = word(l.peer, atEpoch).Load() })
	return epoch, err
}
