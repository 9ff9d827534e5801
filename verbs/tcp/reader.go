package tcp

import (
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/internal/rc"
	"github.com/tryst-rdma/tryst/verbs/internal/soft"
	"github.com/tryst-rdma/tryst/verbs/tcp/internal/frame"
)

// reader reads the frames of a connection, on a goroutine of its own, or on one that polls the
// completion queue (poll). Whoever reads holds drive.
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
// It writes acknowledgements alone, which are short, and waits for nobody but its socket. Where there
// is nothing to read, loop returns errWait, and goes on where it was with the next call.
type reader struct {
	drive sync.Mutex // guards the fields below
	conn  *conn
	in    net.Conn
	raw   *rawSocket // nil: no system calls of our own, as under TLS

	box    *[readBytes]byte // of the device's pool; nil while nothing comes
	buf    []byte           // box
	r, w   int              // what is in buf and was not used
	header frame.Header
	place  place
	inside bool    // the header was read, and its content is next
	rest   int     // bytes of that which are missing
	fd     uintptr // of raw, while its owner reads
	reads  bool    // the frames have begun, and have not ended

	space [maxSGEs + 1][]byte
	try   func(fd uintptr) bool // readUntilWait
	polls func(fd uintptr)      // pollOnce
	err   error                 // of try and polls

	operands [frame.AtomicLen]byte
	fired    []*soft.CQ
	due      bool // the machine may have something to send, or a deadline that is earlier than before

	polling bool        // the owner of drive polls
	acks    bool        // acknowledgements are due: a frame that is posted soon carries them, or the next poll sends them
	timed   bool        // timer is set
	timer   *time.Timer // sends acks where no poll comes
	looks   int         // polls in a row that have found nothing

	frames atomic.Uint64 // frames that have come
}

func (r *reader) init(in net.Conn) {
	r.drive.Lock()
	defer r.drive.Unlock()
	r.in = in
	if r.raw = rawOf(in); r.raw != nil {
		r.try, r.polls = r.readUntilWait, r.pollOnce
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

// errWait: the socket has nothing more now.
var errWait = errors.New("there is nothing to read")

func (r *reader) run() {
	c := r.conn
	c.begin()
	r.drive.Lock()
	r.reads = true
	r.timer = time.AfterFunc(ackDelay, r.late) // set only where somebody polls
	r.timer.Stop()
	r.drive.Unlock()
	err := r.read()
	switch {
	case errors.Is(err, errGone):
	case errors.Is(err, io.EOF):
		c.lose(errors.New("the peer closed the connection"))
	case errors.Is(err, errProtocol):
		c.fail(err)
	default:
		c.lose(fmt.Errorf("reading failed: %w", err))
	}
	r.drive.Lock()
	defer r.drive.Unlock()
	r.reads, r.acks = false, false
	r.timer.Stop()
	r.settle()
	r.r = r.w
	r.give()
}

// read reads until there is an error.
func (r *reader) read() error {
	if r.raw == nil {
		r.drive.Lock()
		defer r.drive.Unlock()
		return r.loop()
	}
	if err := r.raw.read(r.try); err != nil {
		return err
	}
	return r.err
}

// readUntilWait reads what there is. It returns false to wait for the socket.
func (r *reader) readUntilWait(fd uintptr) bool { return r.readAll(fd) || r.spin(fd) }

// spin looks at the socket for a bounded time under Options.Busy, unless many others do that already, or a
// goroutine that polls does it. It reports whether reading has ended.
func (r *reader) spin(fd uintptr) (ended bool) {
	d := r.conn.q.pd.dev
	if !d.options.Busy {
		return false
	}
	if d.spinning.Add(1) > int32(max(1, runtime.GOMAXPROCS(0)/2)) { //nolint:gosec // a number of processors
		d.spinning.Add(-1)
		return false
	}
	defer d.spinning.Add(-1)
	frames := r.frames.Load()
	for start := time.Now(); r.conn.q.pollers.Load() == 0 && time.Since(start) < busySpinTime; runtime.Gosched() {
		for range spinLooks {
			if r.readAll(fd) {
				return true
			}
		}
		if now := r.frames.Load(); now != frames {
			frames, start = now, time.Now()
		}
	}
	return false
}

// readAll reads what there is now, and reports whether reading has ended.
func (r *reader) readAll(fd uintptr) bool {
	r.drive.Lock()
	defer r.drive.Unlock()
	if r.err == nil || errors.Is(r.err, errWait) { // else poll has found that
		r.fd = fd
		r.err = r.loop()
	}
	return !errors.Is(r.err, errWait)
}

// poll reads what there is on the goroutine of the caller, unless another one reads.
func (r *reader) poll() {
	if !r.drive.TryLock() {
		return
	}
	defer r.drive.Unlock()
	if r.raw == nil || !r.reads || r.err != nil && !errors.Is(r.err, errWait) {
		return
	}
	before := r.frames.Load()
	r.polling = true
	_ = r.raw.control(r.polls) // the goroutine of the reader sees that the socket is closed
	r.polling = false
	if r.frames.Load() != before {
		r.looks = 0
		return
	}
	r.acknowledge()
	if r.looks++; r.looks == yieldLooks {
		soft.Yield()
	}
}

// late writes acknowledgements that no later poll has written.
func (r *reader) late() {
	r.drive.Lock()
	defer r.drive.Unlock()
	r.timed = false
	r.acknowledge()
}

// acknowledge writes acknowledgements that nothing else has carried.
func (r *reader) acknowledge() {
	if r.acks {
		r.acks = false
		r.conn.kick()
	}
}

func (r *reader) pollOnce(fd uintptr) {
	r.fd = fd
	r.err = r.loop()
}

// loop handles frames until there is an error. The caller holds drive.
func (r *reader) loop() error {
	for {
		if !r.inside {
			for r.w-r.r < frame.HeaderLen {
				if err := r.fill(); err != nil {
					return err
				}
			}
			if err := r.header.Parse(r.buf[r.r:]); err != nil {
				return fmt.Errorf("%w: it sent %w", errProtocol, err)
			}
			r.r += frame.HeaderLen
			if err := r.begin(&r.header); err != nil {
				return err
			}
			r.inside, r.rest = true, int(r.header.Length)
		}
		if err := r.content(); err != nil {
			return err
		}
		r.end(&r.header)
		r.inside = false
		r.frames.Add(1)
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
	r.take()
	r.space[0] = r.buf[r.w:]
	n, wait, err := readv(r.fd, r.space[:1])
	r.space[0] = nil
	r.w += n
	switch {
	case wait:
		r.give()
		return errWait
	case err != nil:
		return err
	case n == 0:
		return io.EOF
	}
	return nil
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
	output, acks := c.q.machine.hasOutput(), c.q.machine.onlyAcks() // callbacks may have sent it
	if c.q.machine.needsTimer() {
		c.q.armLocked()
	}
	c.q.mu.Unlock()
	switch {
	case !output:
	case acks && r.raw != nil:
		r.acks = true
		switch {
		case !r.polling:
			r.acknowledge()
		case !r.timed:
			r.timed = true
			r.timer.Reset(ackDelay)
		}
	default:
		c.wakeWriter()
	}
}

// content brings the content of a frame, whose header was read, to its place.
func (r *reader) content() error {
	length := int(r.header.Length)
	for r.rest > 0 {
		if r.r == r.w && (r.rest >= readBytes/2 && r.raw != nil && r.place.Kind != placeOperands) {
			n, err := r.readInto(r.rest)
			if err != nil {
				return err
			}
			r.rest -= n
			r.place.Off += uint64(n) //nolint:gosec // not negative
			continue
		}
		if r.r == r.w {
			if err := r.fill(); err != nil {
				return err
			}
		}
		n := min(r.rest, r.w-r.r)
		r.store(r.buf[r.r:r.r+n], length-r.rest)
		r.r += n
		r.rest -= n
		r.place.Off += uint64(n) //nolint:gosec // not negative
	}
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
func (r *reader) find(n int) (buffers [][]byte, ok bool) {
	q, p := r.conn.q, &r.place
	buffers = r.space[:0]
	switch p.Kind {
	case rc.PlaceRecv, placeResponse:
		return q.gather(p.SGL, p.Off, uint64(n), true, buffers) //nolint:gosec // not negative
	case rc.PlaceRemote:
		mem, ok := q.granted(p.Addr+p.Off, uint64(n), p.RKey, verbs.AccessRemoteWrite) //nolint:gosec // likewise
		return append(buffers, mem), ok
	}
	return buffers, true
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
		var buffers [][]byte
		if buffers, ok = r.find(len(b)); ok {
			for _, p := range buffers {
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
	r.r, r.w = 0, 0
	got, wait, err := r.readIntoOnce(n)
	switch {
	case wait:
		r.settle()
		r.give()
		return 0, errWait
	case errors.Is(err, errMisplaced):
		r.misplace()
		return 0, nil
	case err != nil:
		return 0, err
	case got == 0:
		return 0, io.EOF
	}
	r.w = max(got-n, 0)
	return min(got, n), nil
}

// errMisplaced: the place of the content is no longer valid.
var errMisplaced = errors.New("the memory is no longer valid")

// readIntoOnce makes one attempt to read, in an access to memory.
func (r *reader) readIntoOnce(want int) (n int, wait bool, err error) {
	c := r.conn
	r.take()
	c.readAccess.Lock()
	defer c.readAccess.Unlock()
	var buffers [][]byte
	if r.place.Kind == rc.PlaceNowhere { // dropped content overwrites itself in buf
		buffers = append(r.space[:0], r.buf[:min(want, len(r.buf))])
	} else {
		if c.dead.Load() {
			return 0, false, errMisplaced
		}
		var ok bool
		if buffers, ok = r.find(want); !ok {
			return 0, false, errMisplaced
		}
		buffers = append(buffers, r.buf[:behindBytes])
	}
	n, wait, err = readv(r.fd, buffers)
	clear(buffers)
	return n, wait, err
}
