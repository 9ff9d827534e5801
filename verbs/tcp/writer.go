package tcp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"

	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/tcp/internal/frame"
)

// writer writes the frames of a connection. A post writes itself if that needs no waiting;
// otherwise the goroutine of the writer writes.
//
//  1. The machine says what the next frames are (build). Headers and small content are copied
//     into staging; longer content stays where it is.
//  2. One system call writes the batch (writev). What the socket does not take is tried again.
//     Each attempt looks the memory up again, since it may have been closed meanwhile.
//  3. Under TLS, content is copied into staging too, buffer by buffer.
type writer struct {
	conn *conn
	out  net.Conn
	raw  *rawSocket // nil: no system calls of our own, as under TLS
	wake chan struct{}

	// due is set when there may be something to send. Whoever sets it then tries to get mu.
	due atomic.Bool

	mu      sync.Mutex // the right to write; guards the fields below
	ready   bool       // out is set
	broken  bool       // a write failed
	waiting bool       // the socket was full, and the writer's goroutine waits for it

	box      *[stagingBytes]byte // of the device's pool; nil while there is nothing to write
	staging  []byte              // box
	copies   []byte              // for writeThrough
	parts    []part              // of the batch, in order
	sent     int                 // bytes of parts[0] that were written
	hasLong  bool                // the batch has content of the user's memory
	lostPart frameContent        // content whose memory was closed
	vector   [][]byte
	space    [2*batchContents + 2 + maxSGEs][]byte
	blocking bool // for tryWrite: wait for the socket
	err      error
	try      func(fd uintptr) bool
	pace     pace
	header   frame.Header
}

// part is one range of a batch: bytes of staging, or content of the user's memory.
type part struct {
	staged  bool
	from    int // in staging
	n       int
	content frameContent
	// upTo is one more than the last request that is complete with this part, see
	// requester.written.
	upTo uint64
}

func (w *writer) init(out net.Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.out, w.ready = out, true
	w.parts = make([]part, 0, 2*batchContents+2)
	if w.raw = rawOf(out); w.raw != nil {
		w.try = w.writeOnce
	}
}

// run is the writer's goroutine.
func (w *writer) run() {
	for {
		select {
		case <-w.wake:
		case <-w.conn.ctx.Done():
			return
		}
		w.mu.Lock()
		w.waiting = false
		err := w.pump(true)
		w.mu.Unlock()
		switch {
		case errors.Is(err, errGone) || err == nil && w.conn.dead.Load():
			// The peer need not wait for frames. The socket stays open until the queue pair is
			// closed: a close would discard a NAK that the peer has not read.
			endStream(w.out)
			return
		case err != nil:
			w.conn.lose(fmt.Errorf("writing failed: %w", err))
			return
		}
		w.again()
	}
}

// again writes what became due while this goroutine held mu, and found nothing more.
func (w *writer) again() {
	if w.due.Load() {
		w.conn.kick()
	}
}

// wakeWriter lets the writer's goroutine write.
func (c *conn) wakeWriter() {
	c.writer.due.Store(true)
	select {
	case c.writer.wake <- struct{}{}:
	default:
	}
}

// kick writes what is due on this goroutine, as far as that needs no waiting.
func (c *conn) kick() {
	w := &c.writer
	w.due.Store(true)
	for w.due.Load() {
		if !w.mu.TryLock() {
			return // its owner looks at due again
		}
		if !w.ready || w.broken || w.waiting {
			w.mu.Unlock()
			return
		}
		wait := w.raw == nil
		if !wait {
			err := w.pump(false)
			wait = err != nil
			w.waiting = wait
		}
		w.mu.Unlock()
		if wait { // a socket that is full or broken, or TLS: the writer's goroutine goes on
			c.wakeWriter()
			return
		}
	}
}

// errFull: the socket takes nothing more now.
var errFull = errors.New("the socket is full")

// pump writes all that is due. With wait it waits for the socket, else it returns errFull. The
// caller holds mu.
func (w *writer) pump(wait bool) error {
	if w.broken {
		return errGone
	}
	for {
		if len(w.parts) == 0 {
			w.due.Store(false)
			if !w.build() {
				w.give()
				w.pace.rest()
				if w.due.Load() {
					continue
				}
				return nil
			}
		}
		err := w.write(wait)
		if errors.Is(err, errFull) {
			return err
		}
		if err != nil {
			w.broken = true
			return err
		}
	}
}

// take gets a buffer for staging, and give gives it back when the batch is written.
func (w *writer) take() {
	if w.box == nil {
		w.box = w.conn.q.pd.dev.stagingBuffers.Get().(*[stagingBytes]byte) //nolint:errcheck // the pool has nothing else
	}
	w.staging = w.box[:0]
}

func (w *writer) give() {
	if w.box != nil {
		w.conn.q.pd.dev.stagingBuffers.Put(w.box)
		w.box, w.staging = nil, nil
	}
}

// build puts the next frames into the batch. It returns false if there are none.
func (w *writer) build() bool {
	q := w.conn.q
	q.mu.Lock()
	defer q.mu.Unlock()
	w.take()
	w.parts, w.sent, w.hasLong = w.parts[:0], 0, false
	if q.conn.Load() != w.conn {
		return false
	}
	q.machine.share = uint64(w.pace.bytes()) //nolint:gosec // positive
	limit := max(batchBytes, w.pace.bytes())
	now, long, contents := q.now(), 0, 0
	var s frameContent
	for contents < batchContents && long < limit && cap(w.staging)-len(w.staging) >= frame.HeaderLen+smallContent {
		before := q.machine.Next()
		if !q.machine.next(now, len(w.parts) == 0, &w.header, &s) {
			break
		}
		after := q.machine.Next()
		from := len(w.staging)
		w.staging = w.header.Append(w.staging)
		switch {
		case s.n == 0:
		case s.atomic:
			w.staging = binary.NativeEndian.AppendUint64(w.staging, s.value) // as in the responder's memory
		case s.inline != nil:
			w.staging = append(w.staging, s.inline...)
		case s.n <= smallContent:
			if !w.copySmall(&s) {
				w.staging = w.staging[:from]
				w.gone(&s)
				continue
			}
		default:
			w.stage(from, before)
			w.parts = append(w.parts, part{content: s, n: int(s.n), upTo: after}) //nolint:gosec // at most maxSegment
			w.hasLong = true
			long += int(s.n) //nolint:gosec // likewise
			contents++
			continue
		}
		w.stage(from, after)
	}
	w.noteWritten(0)
	if len(w.parts) > 0 {
		q.armLocked()
	}
	return len(w.parts) > 0
}

// stage adds what is in staging from an index on to the batch.
func (w *writer) stage(from int, upTo uint64) {
	n := len(w.staging) - from
	if k := len(w.parts); k > 0 && w.parts[k-1].staged {
		w.parts[k-1].n += n
		w.parts[k-1].upTo = upTo
		return
	}
	w.parts = append(w.parts, part{staged: true, from: from, n: n, upTo: upTo})
}

// noteWritten counts requests as written, after done parts of the batch were. What is staged
// counts already: the user's memory is not needed any more.
func (w *writer) noteWritten(done int) {
	upTo := uint64(0)
	if done > 0 {
		upTo = w.parts[done-1].upTo
	}
	if done < len(w.parts) && w.parts[done].staged {
		upTo = w.parts[done].upTo
	}
	if written := &w.conn.q.machine.req.written; upTo > written.Load() {
		written.Store(upTo)
	}
}

// copySmall copies short content into staging. The caller holds the lock of the queue pair.
func (w *writer) copySmall(s *frameContent) bool {
	c := w.conn
	c.writeAccess.Lock()
	defer c.writeAccess.Unlock()
	buffers, ok := w.find(s, 0, s.n, w.space[:0])
	if !ok || c.dead.Load() {
		return false
	}
	for _, p := range buffers {
		w.staging = append(w.staging, p...)
	}
	return true
}

// find returns the memory of n bytes of a content, from off on. It must be called in an access;
// the memory is valid until its end.
func (w *writer) find(s *frameContent, off, n uint64, buffers [][]byte) ([][]byte, bool) {
	q := w.conn.q
	if s.sgl != nil {
		return q.gather(s.sgl, s.off+off, n, false, buffers)
	}
	mem, ok := q.granted(s.addr+off, n, s.rkey, verbs.AccessRemoteRead)
	return append(buffers, mem), ok
}

// gone breaks the queue pair: the memory of a frame was closed before its header was written.
// The caller holds the lock of the queue pair.
func (w *writer) gone(s *frameContent) {
	m := &w.conn.q.machine
	if s.sgl != nil {
		m.Fail(verbs.StatusLocalProtection)
		return
	}
	m.Break()
}

// write writes the batch, or some of it: with wait until it is written. It returns errFull if
// the socket takes no more, and wait is false.
func (w *writer) write(wait bool) error {
	var err error
	switch {
	case w.raw == nil:
		err = w.writeThrough()
	case copiesFirst && w.hasLong:
		if !wait {
			return errFull
		}
		err = w.writeThrough()
	default:
		w.blocking, w.err = wait, nil
		if err = w.raw.write(w.try); err == nil {
			err = w.err
		}
	}
	if errors.Is(err, errMisplaced) {
		w.lostMemory()
		return errors.New("memory was closed while its content was on its way")
	}
	return err
}

// lostMemory breaks the queue pair after a part of a frame was written whose memory is gone.
// Nothing can follow it.
func (w *writer) lostMemory() {
	q := w.conn.q
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.conn.Load() == w.conn {
		w.gone(&w.lostPart)
	}
}

// writeOnce writes until the batch is written or the socket is full. It returns false to wait
// for the socket.
func (w *writer) writeOnce(fd uintptr) bool {
	for len(w.parts) > 0 {
		wait := w.writeSome(fd)
		if w.err != nil {
			return true
		}
		if wait {
			if !w.blocking {
				w.err = errFull
			}
			return !w.blocking
		}
	}
	return true
}

// writeSome makes one system call, in an access to memory.
func (w *writer) writeSome(fd uintptr) (wait bool) {
	c := w.conn
	c.writeAccess.Lock()
	defer c.writeAccess.Unlock()
	if w.hasLong && c.dead.Load() {
		w.err = errGone
		return false
	}
	w.vector = w.space[:0]
	for i := range w.parts {
		p, skip := &w.parts[i], 0
		if i == 0 {
			skip = w.sent
		}
		if p.staged {
			w.vector = append(w.vector, w.staging[p.from+skip:p.from+p.n])
			continue
		}
		var ok bool
		w.vector, ok = w.find(&p.content, uint64(skip), uint64(p.n-skip), w.vector) //nolint:gosec // not negative
		if !ok {
			w.err, w.lostPart = errMisplaced, p.content
			return false
		}
	}
	onWrite()
	n, wait, err := writev(fd, w.vector)
	clear(w.vector)
	if err != nil {
		w.err = err
		return false
	}
	w.advance(n)
	if w.pace.wrote(n); wait && w.pace.filled(c.q.now()) {
		keepUnsent(fd, w.pace.bytes())
	}
	return wait
}

// advance drops what was written from the batch. The caller is in an access.
func (w *writer) advance(n int) {
	if n == 0 {
		return
	}
	q := w.conn.q
	if w.hasLong {
		w.conn.wroteAt.Store(int64(q.now()))
	}
	w.sent += n
	done := 0
	for done < len(w.parts) && w.sent >= w.parts[done].n {
		w.sent -= w.parts[done].n
		done++
	}
	w.noteWritten(done)
	w.parts = w.parts[:copy(w.parts, w.parts[done:])]
}

// writeThrough writes the batch with one copy of everything, as TLS needs it. What is copied
// counts as written.
func (w *writer) writeThrough() error {
	if w.copies == nil {
		w.copies = make([]byte, copyBytes)
	}
	for len(w.parts) > 0 {
		b, err := w.copyNext()
		if err != nil {
			return err
		}
		onWrite()
		if _, err := w.out.Write(b); err != nil {
			return err
		}
	}
	return nil
}

// copyNext copies the next parts of the batch, as far as they fit the buffer, and drops them
// from the batch. Full buffers make full records of TLS.
func (w *writer) copyNext() ([]byte, error) {
	c := w.conn
	c.writeAccess.Lock()
	defer c.writeAccess.Unlock()
	k := 0
	for len(w.parts) > 0 && k < len(w.copies) {
		p := &w.parts[0]
		n := min(len(w.copies)-k, p.n-w.sent)
		if p.staged {
			k += copy(w.copies[k:k+n], w.staging[p.from+w.sent:])
			w.advance(n)
			continue
		}
		if c.dead.Load() {
			return nil, errGone
		}
		buffers, ok := w.find(&p.content, uint64(w.sent), uint64(n), w.space[:0]) //nolint:gosec // not negative
		if !ok {
			w.lostPart = p.content
			return nil, errMisplaced
		}
		for _, b := range buffers {
			k += copy(w.copies[k:], b)
		}
		w.advance(n)
	}
	return w.copies[:k], nil
}
