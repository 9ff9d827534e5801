//go:build linux

package shm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/internal/rc"
	"github.com/tryst-rdma/tryst/verbs/internal/soft"
)

// requester is what rings add to the half of a queue pair that posts requests. It numbers the parts
// of work requests that it publishes in its ring, from 0 on:
//
//	acked <= done <= published
type requester struct {
	published uint64
	acked     uint64
	done      uint64 // what the peer said last
	parts     [ringEntries]part
	chunks    uint // set of the chunks in use
	deaf      bool // the peer takes its memory back: no response counts any more

	psn        verbs.PSN
	timeout    time.Duration // without any progress; 0: none
	rnr        bool          // the peer has no receive for the oldest part
	rnrUntil   time.Time
	rnrDelay   time.Duration
	retryAt    time.Time // publish again; zero: no need
	progress   time.Time
	lastCopied uint64
}

// part is an entry of the ring that has been published.
type part struct {
	work   uint64 // number of the work request
	offset uint64
	length uint32
	chunk  int8 // -1: none
	op     verbs.Opcode
	last   bool
	shared bool // the peer reads registered memory itself
}

// publishLocked writes as many parts of work requests into the ring as possible. It returns the
// connection if the peer must be woken.
func (q *qp) publishLocked() *connection {
	l, r := q.connection, &q.req
	if l == nil {
		return nil
	}
	before := r.published
	for r.published-r.acked < ringEntries {
		w := q.machine.Sendable()
		if w == nil {
			break
		}
		status, wait := q.fillLocked(l, w)
		if wait {
			break
		}
		if status != verbs.StatusOK {
			if q.machine.FailNext(status) {
				return nil
			}
			break
		}
	}
	if r.published == before {
		return nil
	}
	q.pd.dev.provider.order.onSend()
	word(l.own.mem, atPosted).Store(r.published)
	return l.mustWakeLocked()
}

// fillLocked writes the next part of a work request into the ring, without publishing it. wait
// means that there is no space or descriptor for it yet.
func (q *qp) fillLocked(l *connection, w *rc.SendWork) (status verbs.Status, wait bool) {
	r, off := &q.req, q.machine.Offset()
	b := l.own.mem[entriesAt+int(r.published%ringEntries)*q.entrySize:][:q.entrySize] //nolint:gosec // less than ringEntries
	e := entry{
		number: r.published, psn: uint32(r.psn+verbs.PSN(r.published&psnMask)) & psnMask, op: w.WR.Op, imm: w.WR.Imm,
		rkey: w.WR.RKey, addr: w.WR.RemoteAddr, total: w.Length, offset: off,
	}
	if off == 0 {
		e.flags |= flagFirst
	}
	if w.WR.Solicited {
		e.flags |= flagSolicited
	}
	p := part{work: q.machine.Next(), offset: off, chunk: -1, op: w.WR.Op}
	switch {
	case w.IsAtomic():
		status = q.usable(w.SGL)
		e.length, e.total, e.offset = 8, w.WR.Compare, w.WR.Swap
		if w.WR.Op == verbs.OpFetchAdd {
			e.total = w.WR.Add
		}
	case w.WR.Op == verbs.OpRead:
		status = q.usable(w.SGL)
		e.length = uint32(min(chunkSize, w.Length-off)) //nolint:gosec // at most chunkSize
	default:
		status, wait = q.contentLocked(l, w, b, &e, &p)
	}
	if wait || status != verbs.StatusOK {
		return status, wait
	}
	p.length = e.length
	if p.last = q.machine.Sent(uint64(e.length)); p.last {
		e.flags |= flagLast
	}
	e.put(b)
	r.parts[r.published%ringEntries] = p
	r.published++
	return verbs.StatusOK, false
}

// usable returns an error status if this side may not write to the memory of a list.
func (q *qp) usable(sgl []verbs.SGE) verbs.Status {
	k := q.pd.dev.Keys
	k.Mu.RLock()
	defer k.Mu.RUnlock()
	if !k.UsableLocked(&q.pd.Domain, sgl, true) {
		return verbs.StatusLocalProtection
	}
	return verbs.StatusOK
}

// contentLocked puts content of a SEND or WRITE into an entry, or where the peer finds it: short
// content into the entry itself, registered memfds by their place, other memory into a chunk.
func (q *qp) contentLocked(l *connection, w *rc.SendWork, b []byte, e *entry, p *part) (status verbs.Status, wait bool) {
	k := q.pd.dev.Keys
	k.Mu.RLock()
	defer k.Mu.RUnlock()
	if w.IsInline {
		e.length, e.flags = uint32(copy(b[entryHeader:], w.Inline)), e.flags|flagInline //nolint:gosec // at most maxInline
		return verbs.StatusOK, false
	}
	var space [4][]byte
	if w.Length <= uint64(q.entrySize-entryHeader) {
		buffers, ok := k.GatherLocked(&q.pd.Domain, w.SGL, 0, w.Length, false, space[:0])
		if !ok {
			return verbs.StatusLocalProtection, false
		}
		at := b[entryHeader:]
		for _, x := range buffers {
			at = at[copy(at, x):]
		}
		e.length, e.flags = uint32(w.Length), e.flags|flagInline //nolint:gosec // fits into an entry
		return verbs.StatusOK, false
	}
	if q.rangesLocked(k, w, b, e) {
		for _, s := range w.SGL {
			if s.Length > 0 && !q.announceLocked(l, backingOf(k.LocalLocked(s.LKey)).file) {
				return verbs.StatusOK, true
			}
		}
		p.shared = true
		return verbs.StatusOK, false
	}
	chunk := 0
	for ; q.req.chunks&(1<<chunk) != 0; chunk++ {
	}
	if chunk >= sendChunks {
		return verbs.StatusOK, true // a completion frees one
	}
	mem, id, ok := q.bounceLocked(l, chunk)
	if !ok {
		return verbs.StatusLocalQPOperation, false
	}
	if !q.announceLocked(l, l.bounce) {
		return verbs.StatusOK, true
	}
	off := q.machine.Offset()
	n := min(chunkSize, w.Length-off)
	buffers, ok := k.GatherLocked(&q.pd.Domain, w.SGL, off, n, false, space[:0])
	if !ok {
		return verbs.StatusLocalProtection, false
	}
	for _, x := range buffers {
		mem = mem[copy(mem, x):]
	}
	q.req.chunks |= 1 << chunk
	p.chunk = int8(chunk) //nolint:gosec // less than sendChunks
	e.length, e.ranges = uint32(n), 1
	putRange(b, 0, fileRange{file: id, length: uint32(n), offset: uint64(chunk) * chunkSize}) //nolint:gosec // not negative
	return verbs.StatusOK, false
}

// rangesLocked describes the whole content of a work request as ranges of registered memfds; false
// if some of it is in other memory, or may not be used.
func (q *qp) rangesLocked(k *soft.Keys, w *rc.SendWork, b []byte, e *entry) bool {
	n := 0
	for _, s := range w.SGL {
		if s.Length == 0 {
			continue
		}
		if _, ok := k.MemoryLocked(&q.pd.Domain, s, false); !ok {
			return false
		}
		r := k.LocalLocked(s.LKey)
		m := backingOf(r)
		if m == nil || entryHeader+(n+1)*rangeSize > len(b) {
			return false
		}
		putRange(b, n, fileRange{file: m.file.id, length: s.Length, offset: m.offset + s.Addr - r.Addr()})
		n++
	}
	e.ranges, e.length = uint16(n), uint32(w.Length) //nolint:gosec // at most maxMessage
	return true
}

// bounceLocked returns a chunk of the memfd of the connection, which is made when it is needed
// first, and the number of the memfd.
func (q *qp) bounceLocked(l *connection, chunk int) (mem []byte, id uint32, ok bool) {
	if l.bounce == nil {
		f, err := newMemfd((sendChunks + readChunks) * chunkSize)
		if err != nil {
			q.pd.dev.notShared(q.number, err)
			return nil, 0, false
		}
		f.id = q.pd.dev.fileIDs.Add(1)
		l.bounce = f
	}
	return l.bounce.mem[chunk*chunkSize:][:chunkSize], l.bounce.id, true
}

// announceLocked sends the descriptor of a memfd to the peer unless the peer has it; false if the
// socket is full.
func (q *qp) announceLocked(l *connection, f *file) bool {
	if _, ok := l.known[f.id]; ok {
		return true
	}
	if l.conn != nil {
		if err := l.controlLocked(kindFile, f.id, f.fd); err != nil {
			if errors.Is(err, unix.EPIPE) {
				return false // the peer is gone: requests end with their time
			}
			if !errors.Is(err, unix.EAGAIN) && !l.failing {
				l.failing = true
				q.pd.dev.notShared(q.number, err)
			}
			q.req.retryAt = time.Now().Add(retryDelay)
			q.armLocked(q.req.retryAt)
			return false
		}
	} else if err := q.mapOwn(l, f); err != nil {
		q.pd.dev.notShared(q.number, err)
		return false
	}
	l.known[f.id] = struct{}{}
	return true
}

// takeResponses completes what the peer has executed. The caller holds drive.
func (q *qp) takeResponses(l *connection, s *words) (moved bool) {
	for {
		if !q.enter(l) || q.machine.State() != verbs.StateRTS {
			q.leave()
			return moved
		}
		r := &q.req
		if s.done < r.done || s.done > r.published {
			q.violatedLocked(fmt.Errorf("the peer has executed %d requests of %d, and %d before", s.done, r.published, r.done))
			q.leave()
			return moved
		}
		r.done = s.done
		for r.acked < s.done && r.parts[r.acked%ringEntries].op < verbs.OpRead {
			q.finishPartLocked()
			moved = true
		}
		if r.acked == s.done || r.deaf {
			if moved {
				word(l.own.mem, atConsumed).Store(r.acked)
				if r.timeout > 0 && !q.machine.Idle() {
					q.armLocked(r.progress.Add(r.timeout))
				}
			}
			q.takeFailureLocked(s)
			wake := q.publishLocked()
			q.leave()
			wake.wake()
			return moved
		}
		p := r.parts[r.acked%ringEntries]
		sgl := q.machine.Work(p.work).SGL
		q.copying = true
		q.leave()
		status, gone := q.takeContent(l, r.acked, &p, sgl)
		if !q.reenter(l) || q.machine.State() != verbs.StateRTS {
			q.leave()
			return moved
		}
		switch {
		case gone:
			r.deaf = true
		case status != verbs.StatusOK:
			q.machine.Fail(status)
		default:
			q.finishPartLocked()
			moved = true
			word(l.own.mem, atConsumed).Store(r.acked)
		}
		wake := l.mustWakeLocked()
		q.leave()
		wake.wake()
	}
}

// finishPartLocked ends the oldest part, which the peer has executed.
func (q *qp) finishPartLocked() {
	r := &q.req
	p := &r.parts[r.acked%ringEntries]
	r.acked++
	r.rnr = false
	if p.chunk >= 0 {
		r.chunks &^= 1 << p.chunk
	}
	if r.timeout > 0 {
		r.progress = time.Now()
	}
	if p.op >= verbs.OpRead {
		q.machine.Respond(p.work, uint64(p.length))
	}
	executed := p.work
	if p.last {
		executed++
	}
	q.machine.Acknowledge(executed)
}

// takeContent copies the content of a READ, or the old value of an atomic, from where the peer
// says into the memory of the work request. gone means that the peer takes that memory back.
func (q *qp) takeContent(l *connection, number uint64, p *part, sgl []verbs.SGE) (status verbs.Status, gone bool) {
	var b [responseSize]byte
	if err := guardedCopy(b[:], l.peer[responsesAt+number%ringEntries*responseSize:][:responseSize]); err != nil {
		return verbs.StatusBadResponse, false
	}
	a := parseResponse(b[:])
	if a.number != number {
		return verbs.StatusBadResponse, false
	}
	if p.op != verbs.OpRead {
		binary.NativeEndian.PutUint64(b[:], a.value)
		return q.scatter(l, sgl, 0, b[:8])
	}
	if p.length == 0 {
		return verbs.StatusOK, !q.alive(l)
	}
	m := q.fileOf(l, a.file)
	if m == nil && q.ending(l) {
		return verbs.StatusOK, true
	}
	if m == nil || a.length != p.length || a.value > uint64(len(m.mem)) || uint64(a.length) > uint64(len(m.mem))-a.value {
		return verbs.StatusBadResponse, false
	}
	return q.scatter(l, sgl, p.offset, m.mem[a.value:][:a.length])
}

// scatter copies memory of the peer into the memory of a list, from offset off on.
func (q *qp) scatter(l *connection, sgl []verbs.SGE, off uint64, src []byte) (status verbs.Status, gone bool) {
	k := q.pd.dev.Keys
	for len(src) > 0 {
		n := min(len(src), sliceSize)
		status := func() verbs.Status {
			k.Mu.RLock()
			defer k.Mu.RUnlock()
			var space [4][]byte
			buffers, ok := k.GatherLocked(&q.pd.Domain, sgl, off, uint64(n), true, space[:0]) //nolint:gosec // not negative
			if !ok {
				return verbs.StatusLocalProtection
			}
			from := src[:n]
			for _, to := range buffers {
				if err := q.pd.dev.provider.copy(to, from[:len(to)]); err != nil {
					return verbs.StatusBadResponse
				}
				from = from[len(to):]
			}
			return verbs.StatusOK
		}()
		if status != verbs.StatusOK {
			return status, false
		}
		if !q.alive(l) || q.ending(l) {
			return verbs.StatusOK, true
		}
		src, off = src[n:], off+uint64(n) //nolint:gosec // not negative
	}
	return verbs.StatusOK, false
}

// takeFailureLocked handles what the peer says of the oldest part that it has not executed.
func (q *qp) takeFailureLocked(s *words) {
	r := &q.req
	failed := s.failed >> 8
	if r.acked == r.published || r.acked != s.done && !r.deaf {
		return
	}
	// A deaf queue pair takes no responses, since the peer took its memory back: perhaps because it
	// refused a later request.
	if failed == r.acked+1 || r.deaf && failed > r.acked && failed <= r.published {
		status := verbs.Status(s.failed)
		switch status {
		case verbs.StatusRemoteInvalidRequest, verbs.StatusRemoteAccess, verbs.StatusRemoteOperation:
		default:
			status = verbs.StatusBadResponse
		}
		q.machine.Fail(status)
		return
	}
	if s.noReceive == r.acked+1 && !r.rnr {
		r.rnr = true
		if !q.machine.RNREndless() {
			r.rnrUntil = time.Now().Add(r.rnrDelay)
			q.armLocked(r.rnrUntil)
		}
	}
}
