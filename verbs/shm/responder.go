//go:build linux

package shm

import (
	"fmt"

	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/internal/soft"
)

// responder is the half of a queue pair that executes the requests of the peer. The fields that
// a copy uses outside of the queue pair's lock are guarded by drive.
type responder struct {
	recvs    soft.Ring[recvWork]
	posted   uint64
	consumed uint64 // receives that messages have taken

	executed uint64 // parts of the peer
	seen     uint64 // the highest number of parts that the peer said it had posted
	message  message
	stalled  bool // there is no receive for the next part
	told     bool // and the peer knows
	deaf     bool // what the peer posts has no effect any more
	blocked  bool // the socket is full; the timer tries again
	// reads has what the response in each slot lets the peer read; zero for nothing.
	reads [ringEntries]answered

	entry [maxEntry]byte // copy of the part that is executed
	// readChunk says for each chunk of READ responses up to which number of consumed responses
	// it is in use.
	readChunk [readChunks]uint64
	copied    uint64
	pieces    [4][]byte // space for copySlice
}

// message is the message of the peer that has begun and not ended.
type message struct {
	op       verbs.Opcode
	on       bool
	send     bool // it has taken a receive
	total    uint64
	received uint64
	addr     uint64
	rkey     verbs.RKey
}

// recvWork is a slot of the receive queue.
type recvWork struct {
	id     verbs.WRID
	sgl    []verbs.SGE
	length uint64
}

// answered is the memfd of a registered region that a response to a READ names, and the key of the READ.
type answered struct {
	file uint32
	key  verbs.RKey
}

// outcome is how a copy ended.
type outcome uint8

const (
	copied      outcome = iota
	takenBack           // the poster takes its memory back, or this side ends: as if nothing had come
	noAccess            // the peer's key does not allow it
	noProtected         // the receive names memory that is not registered
	badPlace            // the peer's pieces are outside of its memfds, or cannot be read
)

// takeRequests executes requests of the peer. The caller holds drive.
func (q *qp) takeRequests(l *link, s *words) (moved bool) {
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
func (q *qp) takeRequestLocked(l *link, s *words) (wake, more bool) {
	p := &q.resp
	if q.state != verbs.StateRTR && q.state != verbs.StateRTS || p.deaf {
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
	case e.psn != uint32(q.peerPSN+verbs.PSN(p.executed&psnMask))&psnMask:
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
	if q.state == verbs.StateRTR && !q.established {
		q.established = true
		q.event(verbs.EventCommEstablished)
	}
	if p.message.on && (e.op != p.message.op || e.flags&flagFirst != 0) || !p.message.on && e.flags&flagFirst == 0 ||
		p.message.on && (e.offset != p.message.received || e.total != p.message.total) {
		if e.op < verbs.OpRead || p.message.on {
			q.rejectLocked(l, verbs.StatusRemoteInvalidRequest)
			return true, false
		}
	}
	switch e.op {
	case verbs.OpSend, verbs.OpSendImm:
		return q.executeSend(l, &e, b)
	case verbs.OpWrite, verbs.OpWriteImm:
		return q.executeWrite(l, &e, b)
	case verbs.OpRead:
		return q.executeRead(l, &e, s)
	}
	return q.executeAtomic(l, &e)
}

// executeSend executes a part of a SEND.
func (q *qp) executeSend(l *link, e *entry, b []byte) (wake, more bool) {
	p := &q.resp
	if !p.message.on {
		if !q.takeRecvLocked(l) {
			return true, false
		}
		p.message = message{op: e.op, on: true, send: true, total: e.total}
	}
	w := *p.recvs.At(p.consumed - 1)
	if e.total > w.length {
		q.failRecvLocked(l, verbs.StatusLocalLength, verbs.StatusRemoteInvalidRequest)
		return true, false
	}
	result, ok := q.copyUnlocked(l, e, b, func(at, n uint64, pieces [][]byte) ([][]byte, outcome) {
		pieces, ok := q.pd.dev.Keys.GatherLocked(&q.pd.Domain, w.sgl, e.offset+at, n, true, pieces)
		if !ok {
			return nil, noProtected
		}
		return pieces, copied
	})
	switch {
	case !ok:
		return false, false
	case result == takenBack:
		p.deaf = true
		return false, false
	case result == noProtected:
		q.failRecvLocked(l, verbs.StatusLocalProtection, verbs.StatusRemoteOperation)
		return true, false
	case result != copied:
		q.rejectLocked(l, verbs.StatusRemoteInvalidRequest)
		return true, false
	}
	p.message.received += uint64(e.length)
	if e.flags&flagLast != 0 {
		p.message = message{}
		wc := verbs.WC{Op: verbs.WCRecv, Len: uint32(e.total), HasImm: e.op == verbs.OpSendImm} //nolint:gosec // at most maxMessage
		if wc.HasImm {
			wc.Imm = e.imm
		}
		q.completeRecvLocked(wc, e.flags&flagSolicited != 0)
	}
	q.executedLocked(l)
	return true, true
}

// executeWrite executes a part of a WRITE.
func (q *qp) executeWrite(l *link, e *entry, b []byte) (wake, more bool) {
	p := &q.resp
	last := e.flags&flagLast != 0
	if q.access&verbs.AccessRemoteWrite == 0 || p.message.on && (p.message.addr != e.addr || p.message.rkey != e.rkey) {
		q.rejectLocked(l, verbs.StatusRemoteInvalidRequest)
		return true, false
	}
	if last && e.op == verbs.OpWriteImm && p.consumed == p.posted {
		q.stallLocked(l)
		return true, false
	}
	q.resumeLocked(l)
	// An empty WRITE needs no key (specification, volume 1, 9.7.5.2.4). Each slice checks the
	// whole range, since the region may have been closed in between.
	result, ok := q.copyUnlocked(l, e, b, func(at, n uint64, pieces [][]byte) ([][]byte, outcome) {
		m, from := q.pd.dev.Keys.FindLocked(&q.pd.Domain, q, e.addr, e.total, e.rkey, verbs.AccessRemoteWrite)
		if m == nil {
			return nil, noAccess
		}
		return append(pieces, m.BytesLocked(from+e.offset+at, n)), copied
	})
	switch {
	case !ok:
		return false, false
	case result == takenBack:
		p.deaf = true
		return false, false
	case result == noAccess:
		q.rejectLocked(l, verbs.StatusRemoteAccess)
		return true, false
	case result != copied:
		q.rejectLocked(l, verbs.StatusRemoteInvalidRequest)
		return true, false
	}
	p.message = message{op: e.op, on: !last, total: e.total, received: e.offset + uint64(e.length), addr: e.addr, rkey: e.rkey}
	if last {
		p.message = message{}
		if e.op == verbs.OpWriteImm {
			if !q.takeRecvLocked(l) {
				return true, false
			}
			q.completeRecvLocked(verbs.WC{Op: verbs.WCRecvWrite, HasImm: true, Imm: e.imm, Len: uint32(e.total)}, e.flags&flagSolicited != 0) //nolint:gosec // at most maxMessage
		}
	}
	q.executedLocked(l)
	return true, true
}

// executeRead tells the peer where it finds the content.
func (q *qp) executeRead(l *link, e *entry, s *words) (wake, more bool) {
	p, k := &q.resp, q.pd.dev.Keys
	if q.access&verbs.AccessRemoteRead == 0 || q.reads == 0 {
		q.rejectLocked(l, verbs.StatusRemoteInvalidRequest)
		return true, false
	}
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
func (q *qp) executeAtomic(l *link, e *entry) (wake, more bool) {
	k := q.pd.dev.Keys
	if q.access&verbs.AccessRemoteAtomic == 0 || q.reads == 0 {
		q.rejectLocked(l, verbs.StatusRemoteInvalidRequest)
		return true, false
	}
	k.Mu.RLock()
	defer k.Mu.RUnlock()
	mem, ok := k.GrantedLocked(&q.pd.Domain, q, e.addr, 8, e.rkey, verbs.AccessRemoteAtomic)
	if !ok {
		q.rejectLocked(l, verbs.StatusRemoteAccess)
		return true, false
	}
	old := k.FetchAndUpdate(mem, func(old uint64) uint64 {
		switch {
		case e.op == verbs.OpFetchAdd:
			return old + e.total
		case old == e.total:
			return e.offset
		}
		return old
	})
	q.resp.reads[e.number%ringEntries] = answered{}
	a := response{number: e.number, value: old, length: 8}
	a.put(l.own.mem[responsesAt+e.number%ringEntries*responseSize:])
	q.executedLocked(l)
	return true, true
}

// executedLocked tells the peer that the next part has been executed.
func (q *qp) executedLocked(l *link) {
	q.resp.executed++
	q.pd.dev.provider.order.onSend()
	word(l.own.mem, atDone).Store(q.resp.executed)
}

// takeRecvLocked takes the oldest posted receive; false if there is none, which it reports to the peer.
func (q *qp) takeRecvLocked(l *link) bool {
	if q.resp.consumed == q.resp.posted {
		q.stallLocked(l)
		return false
	}
	q.resp.consumed++
	q.resumeLocked(l)
	return true
}

// resumeLocked tells the peer that its request no longer waits for a receive.
func (q *qp) resumeLocked(l *link) {
	if q.resp.told {
		q.resp.told = false
		word(l.own.mem, atNoReceive).Store(0)
	}
}

func (q *qp) stallLocked(l *link) {
	q.resp.stalled, q.resp.told = true, true
	word(l.own.mem, atNoReceive).Store(q.resp.executed + 1)
}

// rejectLocked fails the current request of the peer and breaks the queue pair (specification,
// volume 1, 9.9.3.1, class C).
func (q *qp) rejectLocked(l *link, status verbs.Status) {
	q.pd.dev.provider.order.onSend()
	word(l.own.mem, atFailed).Store((q.resp.executed+1)<<8 | uint64(status))
	q.breakLocked()
	if status == verbs.StatusRemoteAccess {
		q.event(verbs.EventQPAccess)
	} else {
		q.event(verbs.EventQPRequest)
	}
}

// failRecvLocked ends the current receive with an error, and fails the request of the peer.
func (q *qp) failRecvLocked(l *link, own, theirs verbs.Status) {
	q.resp.message = message{}
	q.completeRecvLocked(verbs.WC{Status: own}, false)
	q.rejectLocked(l, theirs)
}

// copyUnlocked copies the content of a part to where place says, in slices, without the queue
// pair's lock, which the caller holds before and after. place returns the memory for n bytes from
// at on; it is called while regions cannot be closed. ok is false if the queue pair broke or lost
// its link in the meantime.
func (q *qp) copyUnlocked(l *link, e *entry, b []byte, place func(at, n uint64, pieces [][]byte) ([][]byte, outcome)) (result outcome, ok bool) {
	q.copying = true
	q.leave()
	result = q.copyPart(l, e, b, place)
	if !q.reenter(l) || q.state != verbs.StateRTR && q.state != verbs.StateRTS {
		return takenBack, false
	}
	return result, true
}

func (q *qp) copyPart(l *link, e *entry, b []byte, place func(at, n uint64, pieces [][]byte) ([][]byte, outcome)) outcome {
	at := uint64(0)
	count := int(e.pieces)
	if e.flags&flagInline != 0 {
		count = 1
	}
	for i := range count {
		var src []byte
		if e.flags&flagInline != 0 {
			src = b[entryHeader:][:e.length]
		} else {
			c := parsePiece(b, i)
			m := q.fileOf(l, c.file)
			if m == nil && q.ending(l) {
				return takenBack
			}
			if m == nil || c.offset > uint64(len(m.mem)) || uint64(c.length) > uint64(len(m.mem))-c.offset {
				return badPlace
			}
			src = m.mem[c.offset:][:c.length]
		}
		for len(src) > 0 {
			n := min(len(src), sliceOf(e.total))
			if r := q.copySlice(src[:n], at, place); r != copied {
				return r
			}
			src, at = src[n:], at+uint64(n) //nolint:gosec // not negative
			if f := q.pd.dev.provider.mistakes.onSlice; f != nil {
				f()
			}
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

// ending reports whether the queue pair broke or is about to lose the link, so that a copy need not
// come to its end.
func (q *qp) ending(l *link) bool {
	return q.stopping.Load() > 0 || word(l.own.mem, atEpoch).Load() != epochAlive
}

// sliceOf returns how much of a message of total bytes is copied at once.
func sliceOf(total uint64) int {
	if total >= longMessage {
		return longSlice
	}
	return sliceSize
}

func (q *qp) copySlice(src []byte, at uint64, place func(at, n uint64, pieces [][]byte) ([][]byte, outcome)) outcome {
	k := q.pd.dev.Keys
	k.Mu.RLock()
	defer k.Mu.RUnlock()
	pieces, r := place(at, uint64(len(src)), q.resp.pieces[:0])
	if r != copied {
		return r
	}
	if f := q.pd.dev.provider.mistakes.inSlice; f != nil {
		f()
	}
	for _, to := range pieces {
		if err := guardedCopy(to, src[:len(to)]); err != nil {
			return badPlace
		}
		src = src[len(to):]
	}
	return copied
}

// alive reports whether the memory that the peer posted is still the peer's to give. It is read
// after each copy: if it is set then, the content was copied before the peer took it back.
func (q *qp) alive(l *link) bool {
	if q.pd.dev.provider.mistakes.skipEpoch {
		return true
	}
	q.barrier.order() // the loads of the copy come before the load of the epoch
	var epoch uint64
	if guard(func() { epoch = word(l.peer, atEpoch).Load() }) != nil {
		return false
	}
	return epoch == epochAlive
}
