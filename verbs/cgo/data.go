//go:build linux && cgo

// The data path. Its steps are in the package comment.

package libibverbs

// The shim calls no Go, so memory that is passed to it does not move (noescape). nocallback is
// left out, since with it the runtime checks each call.

// #cgo noescape shim_post_send
// #cgo noescape shim_post_recv
// #cgo noescape shim_poll_cq
// #cgo noescape shim_post_send_and_poll
// #cgo noescape shim_req_notify_cq
// #include "shim.h"
import "C"

import (
	"errors"
	"fmt"
	"math/bits"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tryst-rdma/tryst/verbs"
)

// mapping is memory that Go and C both see and the garbage collector does not.
type mapping []byte

func newMapping(size int) (mapping, error) {
	m, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes: %w", size, err)
	}
	return m, nil
}

// free may be called again.
func (m *mapping) free() {
	if *m != nil {
		_ = unix.Munmap(*m)
		*m = nil
	}
}

// cut takes an array of n elements off the front of a mapping. Its start must be
// aligned for T, and a mapping's is: arrays are cut in order of falling alignment.
func cut[T any](m []byte, n int) ([]T, []byte) {
	var zero T
	size := n * int(unsafe.Sizeof(zero))
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(m[:size]))), n), m[size:]
}

// postQueue is what the two queues of a queue pair have in common.
type postQueue struct {
	mu     sync.Mutex       // protects everything in the queue: one post at a time
	handle *C.struct_ibv_qp // nil when closed
	state  verbs.QPState    // that the queue pair was brought to; it may have broken since
	mem    mapping          // of what follows in the queue
	maxSGE int              // of one work request
	sges   []C.shim_sge
	full   error // made once: a full queue is no rare event
	object string
}

// init takes the queue pair; mem is made by the caller.
func (p *postQueue) init(qp *C.struct_ibv_qp, object string, maxSGE int, size int) (rest []byte, err error) {
	p.handle, p.object, p.maxSGE = qp, object, maxSGE
	p.full = &verbs.Error{Op: "post on", Object: object, Err: verbs.ErrQueueFull}
	n := max(ringSGEs, maxSGE)
	p.mem, err = newMapping(size + n*C.sizeof_shim_sge)
	if err != nil {
		return nil, err
	}
	p.sges, rest = cut[C.shim_sge](p.mem, n)
	return rest, nil
}

func (p *postQueue) free() {
	p.handle = nil
	p.mem.free()
	p.sges = nil
}

// usable says why nothing can be posted now.
func (p *postQueue) usable(allowed bool) error {
	switch {
	case p.handle == nil:
		return &verbs.Error{Op: "post on", Object: p.object, Err: verbs.ErrClosed}
	case !allowed:
		return verbs.Errorf("post on", p.object, verbs.ErrInvalid, "the queue pair is in %v", p.state)
	}
	return nil
}

// put writes elements behind the first n.
func (p *postQueue) put(n int, sgl []verbs.SGE) {
	for i := range sgl {
		p.sges[n+i] = C.shim_sge{
			addr: C.uint64_t(sgl[i].Addr), length: C.uint32_t(sgl[i].Length), lkey: C.uint32_t(sgl[i].LKey),
		}
	}
}

// failed is the error of a post.
func (p *postQueue) failed(rc C.int32_t, errno error) error {
	err := zeroOrErrno(int(rc), errno)
	if errors.Is(err, syscall.ENOMEM) {
		return p.full
	}
	return explain("post on", p.object, err)
}

func (p *postQueue) invalid(format string, args ...any) error {
	return verbs.Errorf("post on", p.object, verbs.ErrInvalid, format, args...)
}

// sendQueue is the send queue of a queue pair.
type sendQueue struct {
	postQueue
	maxInline int
	wrs       []C.shim_send_wr
	inline    []byte
}

func (s *sendQueue) init(qp *C.struct_ibv_qp, object string, maxSGE, maxInline int) error {
	room := max(ringInline, maxInline)
	rest, err := s.postQueue.init(qp, object, maxSGE, ringWRs*C.sizeof_shim_send_wr+room)
	if err != nil {
		return err
	}
	s.maxInline = maxInline
	s.wrs, rest = cut[C.shim_send_wr](rest, ringWRs)
	s.inline = rest[:room]
	return nil
}

func (s *sendQueue) free() {
	s.postQueue.free()
	s.wrs, s.inline = nil, nil
}

// usable says why nothing can be sent now. Drivers must not be asked: rxe takes
// a work request in INIT, says EINVAL, and carries it out later.
func (s *sendQueue) usable() error {
	return s.postQueue.usable(s.state == verbs.StateRTS || s.state == verbs.StateErr)
}

// check says what is wrong with a work request.
func (s *sendQueue) check(w *verbs.SendWR) error {
	atomic := w.Op == verbs.OpCompareSwap || w.Op == verbs.OpFetchAdd
	switch {
	case int(w.Op) >= len(wrOpcodes):
		return s.invalid("operation %v is not one that there is", w.Op)
	case w.Inline != nil && (atomic || w.Op == verbs.OpRead):
		return s.invalid("%v brings bytes here: it cannot be inline", w.Op)
	case len(w.Inline) > s.maxInline:
		return s.invalid("%d bytes inline: this queue pair takes %d", len(w.Inline), s.maxInline)
	case w.Inline == nil && len(w.SGL) > s.maxSGE:
		return s.invalid("%d scatter/gather elements: this queue pair takes %d", len(w.SGL), s.maxSGE)
	case atomic && (len(w.SGL) != 1 || w.SGL[0].Length != atomicBytes):
		return s.invalid("%v needs one scatter/gather element of %d bytes", w.Op, atomicBytes)
	case atomic && w.RemoteAddr%atomicBytes != 0:
		return s.invalid("%v at %#x, which is not aligned to %d", w.Op, w.RemoteAddr, atomicBytes)
	case w.Len() > maxMessage:
		return s.invalid("%d bytes in one message: there are %d at most", w.Len(), maxMessage)
	}
	return nil
}

// fill writes as many work requests into the ring as it holds, one at least, or
// as come before one that is wrong.
func (s *sendQueue) fill(wrs []verbs.SendWR) (n int, wrong error) {
	elements, inline := 0, 0
	for n < min(len(wrs), len(s.wrs)) {
		w := &wrs[n]
		if err := s.check(w); err != nil {
			return n, err
		}
		d := C.shim_send_wr{
			wr_id: C.uint64_t(w.ID), opcode: C.uint32_t(wrOpcodes[w.Op]), imm_be: C.uint32_t(bits.ReverseBytes32(w.Imm)),
			remote_addr: C.uint64_t(w.RemoteAddr), rkey: C.uint32_t(w.RKey), first_sge: C.uint32_t(elements),
		}
		if w.Signaled {
			d.send_flags |= ibvSendSignaled
		}
		if w.Solicited {
			d.send_flags |= ibvSendSolicited
		}
		if w.Fence {
			d.send_flags |= ibvSendFence
		}
		switch w.Op {
		case verbs.OpCompareSwap:
			d.atomic, d.compare_add, d.swap = 1, C.uint64_t(w.Compare), C.uint64_t(w.Swap)
		case verbs.OpFetchAdd:
			d.atomic, d.compare_add = 1, C.uint64_t(w.Add)
		}
		switch {
		case w.Inline == nil:
			if elements+len(w.SGL) > len(s.sges) {
				return n, nil
			}
			s.put(elements, w.SGL)
			d.num_sge = C.uint32_t(len(w.SGL))
		case len(w.Inline) > 0:
			if elements == len(s.sges) || inline+len(w.Inline) > len(s.inline) {
				return n, nil
			}
			at := s.inline[inline:]
			inline += copy(at, w.Inline)
			s.sges[elements] = C.shim_sge{addr: C.uint64_t(uintptr(unsafe.Pointer(&at[0]))), length: C.uint32_t(len(w.Inline))}
			d.send_flags |= ibvSendInline
			d.num_sge = 1
		}
		elements += int(d.num_sge)
		s.wrs[n] = d
		n++
	}
	return n, nil
}

// postRing posts the first n work requests of the ring. When all are taken it
// returns what is wrong with the next one, if anything.
func (s *sendQueue) postRing(n int, wrong error) (int, error) {
	if n == 0 {
		return 0, wrong
	}
	r, errno := C.shim_post_send(s.handle, &s.wrs[0], &s.sges[0], C.uint32_t(n))
	if r.rc != 0 {
		return int(r.taken), s.failed(r.rc, errno)
	}
	return n, wrong
}

// PostSend posts send work requests.
func (q *queuePair) PostSend(wrs []verbs.SendWR) (posted int, err error) {
	s := &q.send
	s.mu.Lock()
	defer s.mu.Unlock()
	err = s.usable()
	for err == nil && posted < len(wrs) {
		n, wrong := s.fill(wrs[posted:])
		var taken int
		taken, err = s.postRing(n, wrong)
		posted += taken
	}
	return posted, err
}

// PostSendAndPoll posts, and polls in the crossing of the last batch; also when
// something could not be posted.
func (q *queuePair) PostSendAndPoll(wrs []verbs.SendWR, cq verbs.CQ, wcs []verbs.WC) (posted, polled int, err error) {
	s := &q.send
	c, ok := cq.(*completionQueue)
	if !ok || c.device != q.pd.device {
		return 0, 0, s.invalid("the completion queue to poll is of another device")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.handle == nil {
		return 0, 0, c.err("poll", verbs.ErrClosed)
	}
	err = s.usable()
	for err == nil && posted < len(wrs) {
		n, wrong := s.fill(wrs[posted:])
		if wrong != nil || posted+n < len(wrs) || len(wcs) == 0 {
			var taken int
			taken, err = s.postRing(n, wrong)
			posted += taken
			continue
		}
		room := min(len(wcs), pollBatch)
		r, errno := C.shim_post_send_and_poll(s.handle, &s.wrs[0], &s.sges[0], C.uint32_t(n), c.handle, &c.ring.wcs[0], C.uint32_t(room))
		posted += int(r.posted.taken)
		polled, err = c.collect(r.polled, wcs)
		if r.posted.rc != 0 {
			err = s.failed(r.posted.rc, errno)
		}
		if err != nil || polled < room {
			return posted, polled, err
		}
	}
	more, pollErr := c.pollLocked(wcs[polled:])
	if err == nil {
		err = pollErr
	}
	return posted, polled + more, err
}

// recvQueue is the receive queue of a queue pair.
type recvQueue struct {
	postQueue
	wrs []C.shim_recv_wr
}

func (r *recvQueue) init(qp *C.struct_ibv_qp, object string, maxSGE int) error {
	rest, err := r.postQueue.init(qp, object, maxSGE, ringWRs*C.sizeof_shim_recv_wr)
	if err != nil {
		return err
	}
	r.wrs, _ = cut[C.shim_recv_wr](rest, ringWRs)
	return nil
}

func (r *recvQueue) free() {
	r.postQueue.free()
	r.wrs = nil
}

// fill is sendQueue.fill for receives.
func (r *recvQueue) fill(wrs []verbs.RecvWR) (n int, wrong error) {
	elements := 0
	for n < min(len(wrs), len(r.wrs)) {
		w := &wrs[n]
		switch {
		case len(w.SGL) > r.maxSGE:
			return n, r.invalid("%d scatter/gather elements: this queue pair takes %d", len(w.SGL), r.maxSGE)
		case w.Len() > maxMessage:
			return n, r.invalid("room for %d bytes: a message has %d at most", w.Len(), maxMessage)
		case elements+len(w.SGL) > len(r.sges):
			return n, nil
		}
		r.put(elements, w.SGL)
		r.wrs[n] = C.shim_recv_wr{wr_id: C.uint64_t(w.ID), first_sge: C.uint32_t(elements), num_sge: C.uint32_t(len(w.SGL))}
		elements += len(w.SGL)
		n++
	}
	return n, nil
}

// PostRecv posts receives.
func (q *queuePair) PostRecv(wrs []verbs.RecvWR) (posted int, err error) {
	r := &q.recv
	r.mu.Lock()
	defer r.mu.Unlock()
	err = r.usable(r.state != verbs.StateReset)
	for err == nil && posted < len(wrs) {
		n, wrong := r.fill(wrs[posted:])
		if n > 0 {
			p, errno := C.shim_post_recv(r.handle, &r.wrs[0], &r.sges[0], C.uint32_t(n))
			posted += int(p.taken)
			if p.rc != 0 {
				return posted, r.failed(p.rc, errno)
			}
		}
		err = wrong
	}
	if posted > 0 && r.state == verbs.StateErr {
		q.stir()
	}
	return posted, err
}

// completionRing is where C writes completions.
type completionRing struct {
	mem mapping
	wcs []C.shim_wc
}

func newCompletionRing() (r completionRing, err error) {
	r.mem, err = newMapping(pollBatch * C.sizeof_shim_wc)
	if err == nil {
		r.wcs, _ = cut[C.shim_wc](r.mem, pollBatch)
	}
	return r, err
}

func (r *completionRing) free() {
	r.mem.free()
	r.wcs = nil
}

// Poll takes completions.
func (q *completionQueue) Poll(wcs []verbs.WC) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.handle == nil {
		return 0, q.err("poll", verbs.ErrClosed)
	}
	return q.pollLocked(wcs)
}

func (q *completionQueue) pollLocked(wcs []verbs.WC) (n int, err error) {
	for n < len(wcs) {
		room := min(len(wcs)-n, pollBatch)
		got, err := q.collect(C.shim_poll_cq(q.handle, &q.ring.wcs[0], C.uint32_t(room)), wcs[n:])
		n += got
		if err != nil || got < room {
			return n, err
		}
	}
	return n, nil
}

// collect copies what one crossing brought out of the ring.
func (q *completionQueue) collect(rc C.int32_t, wcs []verbs.WC) (int, error) {
	n, err := countOrNegative(int64(rc))
	if err != nil {
		return 0, explain("poll the completion queue of", q.device.info.Name, err)
	}
	for i := range n {
		c := &q.ring.wcs[i]
		wcs[i] = verbs.WC{
			ID: verbs.WRID(c.wr_id), Status: status(uint32(c.status)), Op: wcOp(uint32(c.opcode)),
			HasImm: c.wc_flags&ibvWCWithImm != 0, VendorErr: uint32(c.vendor_err), Len: uint32(c.byte_len),
			Imm: bits.ReverseBytes32(uint32(c.imm_be)), QPN: verbs.QPN(c.qp_num),
		}
	}
	return n, nil
}

// status is the same number; one that cannot be is a general error.
func status(n uint32) verbs.Status {
	if n > uint32(^verbs.Status(0)) {
		return verbs.StatusGeneral
	}
	return verbs.Status(n)
}
