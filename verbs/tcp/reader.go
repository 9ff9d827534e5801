package tcp

import (
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/internal/rc"
	"github.com/tryst-rdma/tryst/verbs/internal/soft"
	"github.com/tryst-rdma/tryst/verbs/tcp/internal/frame"
)

// reader reads the frames of a connection, on a goroutine of its own.
//
//  1. It reads as much as there is into buf.
//  2. It takes a header and asks the machine for the place of its content.
//  3. What is in buf already is copied to that place. The rest is read straight into it, with
//     buf behind, so that the next header comes by the same system call. TLS has no such way:
//     everything passes through buf.
//  4. The machine completes what is complete.
//  5. Before it waits for more, it runs the callbacks of completion queues, wakes the writer
//     if there is something to send, and sets the timer.
//
// It writes nothing, and waits for nobody but its socket.
type reader struct {
	conn *conn
	in   net.Conn
	raw  *rawSocket // nil: no system calls of our own, as under TLS

	box    *[readBytes]byte // of the device's pool; nil while nothing comes
	buf    []byte           // box
	r, w   int              // what is in buf and was not used
	header frame.Header
	place  place

	// For readInto.
	want   int // bytes of content that are missing
	got    int
	pieces [][]byte
	space  [maxSGEs + 1][]byte
	err    error
	try    func(fd uintptr) bool // readIntoOnce

	tryFill  func(fd uintptr) bool // fillOnce
	operands [frame.AtomicLen]byte
	fired    []*soft.CQ
	due      bool // the machine may have something to send, or a deadline that is earlier than before
}

func (r *reader) init(in net.Conn) {
	r.in = in
	if r.raw = rawOf(in); r.raw != nil {
		r.try, r.tryFill = r.readIntoOnce, r.fillOnce
	}
}

// take gets a buffer, and give gives an empty one back: a reader that waits has none.
func (r *reader) take() {
	if r.box == nil {
		r.box = r.conn.q.pd.dev.readBuffers.Get().(*[readBytes]byte) //nolint:errcheck // the pool has nothing else
		r.buf = r.box[:]
	}
}

func (r *reader) give() {
	if r.box != nil && r.r == r.w {
		r.conn.q.pd.dev.readBuffers.Put(r.box)
		r.box, r.buf, r.r, r.w = nil, nil, 0, 0
	}
}

// errGone ends a reader or writer without words: its queue pair is gone.
var errGone = errors.New("the queue pair takes nothing any more")

func (r *reader) run() {
	c := r.conn
	c.begin()
	err := r.loop()
	switch {
	case errors.Is(err, errGone):
	case errors.Is(err, io.EOF):
		c.lose(errors.New("the peer closed the connection"))
	case errors.Is(err, errProtocol):
		c.fail(err)
	default:
		c.lose(fmt.Errorf("reading failed: %w", err))
	}
	r.settle()
	r.r = r.w
	r.give()
}

func (r *reader) loop() error {
	for {
		for r.w-r.r < frame.HeaderLen {
			if err := r.fill(); err != nil {
				return err
			}
		}
		if err := r.header.Parse(r.buf[r.r:]); err != nil {
			return fmt.Errorf("%w: it sent %w", errProtocol, err)
		}
		r.r += frame.HeaderLen
		if err := r.frame(); err != nil {
			return err
		}
	}
}

// fill reads more into buf, after everything that is due before a wait.
func (r *reader) fill() error {
	r.settle()
	if r.r == r.w {
		r.r, r.w = 0, 0
	} else if r.r > 0 {
		r.w = copy(r.buf, r.buf[r.r:r.w])
		r.r = 0
	}
	if r.raw == nil {
		r.take()
		n, err := r.in.Read(r.buf[r.w:])
		r.w += n
		if n == 0 && err == nil {
			err = io.ErrNoProgress
		}
		if n > 0 {
			err = nil // it comes again
		}
		return err
	}
	r.err = nil
	if err := r.raw.read(r.tryFill); err != nil {
		return err
	}
	return r.err
}

// fillOnce makes one attempt to read into buf. It returns false to wait for the socket.
func (r *reader) fillOnce(fd uintptr) bool {
	r.take()
	r.space[0] = r.buf[r.w:]
	n, wait, err := readv(fd, r.space[:1])
	r.space[0] = nil
	switch {
	case wait:
		r.give()
		return false
	case err != nil:
		r.err = err
	case n == 0:
		r.err = io.EOF
	}
	r.w += n
	return true
}

// settle runs callbacks, wakes the writer if there is something to send, and sets the timer. After
// frames that cause none of this it takes no lock.
func (r *reader) settle() {
	for _, c := range r.fired {
		c.Call()
	}
	r.fired = r.fired[:0]
	if !r.due {
		return
	}
	r.due = false
	c := r.conn
	c.q.mu.Lock()
	output := c.q.machine.hasOutput() // callbacks may have sent it
	if c.q.machine.needsTimer() {
		c.q.armLocked()
	}
	c.q.mu.Unlock()
	if output {
		c.wakeWriter()
	}
}

// frame handles one frame, whose header was read.
func (r *reader) frame() error {
	h := &r.header
	if err := r.begin(h); err != nil {
		return err
	}
	rest := int(h.Length)
	for rest > 0 {
		if r.r == r.w && (rest >= readBytes/2 && r.raw != nil && r.place.Kind != placeOperands) {
			n, err := r.readInto(rest)
			if err != nil {
				return err
			}
			rest -= n
			r.place.Off += uint64(n) //nolint:gosec // not negative
			continue
		}
		if r.r == r.w {
			if err := r.fill(); err != nil {
				return err
			}
		}
		n := min(rest, r.w-r.r)
		r.store(r.buf[r.r:r.r+n], int(h.Length)-rest)
		r.r += n
		rest -= n
		r.place.Off += uint64(n) //nolint:gosec // not negative
	}
	r.end(h)
	return nil
}

// begin gives the header to the machine.
func (r *reader) begin(h *frame.Header) (err error) {
	onRead()
	q := r.conn.q
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.conn.Load() != r.conn || q.machine.State() == verbs.StateErr || q.machine.resp.refused {
		return errGone
	}
	q.Calling = true
	r.place, err = q.machine.receive(q.now(), h)
	q.Calling = false
	r.takeFired()
	return err
}

// end tells the machine that the content is in its place.
func (r *reader) end(h *frame.Header) {
	onRead()
	q := r.conn.q
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.conn.Load() != r.conn {
		return
	}
	q.Calling = true
	if r.place.Kind == placeOperands {
		r.conn.readAccess.Lock()
		q.machine.placed(h, &r.place, r.operands[:])
		r.conn.readAccess.Unlock()
	} else {
		q.machine.placed(h, &r.place, nil)
	}
	q.Calling = false
	r.takeFired()
}

// takeFired takes the events that the frame caused, and notes what settle has to do. The caller
// holds the lock of the queue pair.
func (r *reader) takeFired() {
	q := r.conn.q
	r.fired = q.TakeFired(r.fired)
	r.due = q.machine.hasOutput() || q.machine.needsTimer()
}

// find returns the memory of the next n bytes of content. It must be called in an access; the
// memory is valid until its end.
func (r *reader) find(n int) (pieces [][]byte, ok bool) {
	q, p := r.conn.q, &r.place
	pieces = r.space[:0]
	switch p.Kind {
	case rc.PlaceRecv, placeResponse:
		return q.gather(p.SGL, p.Off, uint64(n), true, pieces) //nolint:gosec // not negative
	case rc.PlaceRemote:
		mem, ok := q.granted(p.Addr+p.Off, uint64(n), p.RKey, verbs.AccessRemoteWrite) //nolint:gosec // likewise
		return append(pieces, mem), ok
	}
	return pieces, true
}

// store copies content to its place.
func (r *reader) store(b []byte, off int) {
	switch r.place.Kind {
	case rc.PlaceNowhere:
		return
	case placeOperands:
		copy(r.operands[off:], b)
		return
	}
	c := r.conn
	c.readAccess.Lock()
	ok := !c.dead.Load()
	if ok {
		var pieces [][]byte
		if pieces, ok = r.find(len(b)); ok {
			for _, p := range pieces {
				b = b[copy(p, b):]
			}
		}
	}
	c.readAccess.Unlock()
	if !ok {
		r.misplace()
	}
}

// misplace gives up the place of the content: its memory is no longer valid. The rest of the
// frame is dropped.
func (r *reader) misplace() {
	q := r.conn.q
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.conn.Load() == r.conn {
		q.Calling = true
		q.machine.misplaced(&r.place)
		q.Calling = false
		r.takeFired()
	}
	r.place = place{}
}

// readInto reads content straight into its place, at most n bytes, and returns their number.
// What comes behind them goes to buf, which is empty.
func (r *reader) readInto(n int) (int, error) {
	if len(r.fired) > 0 {
		r.settle()
	}
	r.want, r.got, r.err = n, 0, nil
	r.r, r.w = 0, 0
	if err := r.raw.read(r.try); err != nil {
		return 0, err
	}
	if errors.Is(r.err, errMisplaced) {
		r.misplace()
		return 0, nil
	}
	return r.got, r.err
}

// errMisplaced: the place of the content is no longer valid.
var errMisplaced = errors.New("the memory is no longer valid")

// readIntoOnce makes one attempt to read. It returns false to wait for the socket.
func (r *reader) readIntoOnce(fd uintptr) bool {
	c := r.conn
	r.take()
	c.readAccess.Lock()
	defer c.readAccess.Unlock()
	if r.place.Kind == rc.PlaceNowhere { // dropped content overwrites itself in buf
		n := min(r.want, len(r.buf))
		r.pieces = append(r.space[:0], r.buf[:n])
	} else {
		if c.dead.Load() {
			r.err = errMisplaced
			return true
		}
		pieces, ok := r.find(r.want)
		if !ok {
			r.err = errMisplaced
			return true
		}
		r.pieces = append(pieces, r.buf[:behindBytes])
	}
	n, wait, err := readv(fd, r.pieces)
	clear(r.pieces)
	switch {
	case wait:
		r.give()
		return false
	case err != nil:
		r.err = err
	case n == 0:
		r.err = io.EOF
	case n > r.want:
		r.got, r.w = r.want, n-r.want
	default:
		r.got = n
	}
	return true
}
