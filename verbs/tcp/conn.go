package tcp

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"

	"github.com/tryst-rdma/tryst/verbs"
)

// conn carries the frames of a queue pair. It exists from INIT on, gets its sockets when a
// greeting was proved, and ends with the queue pair or when a socket fails. A queue pair that
// is connected to itself has two sockets, the ends of one connection; all others have one.
//
//	writer: machine.next ──► batch ──► writev from the user's memory
//	reader: read ──► header ──► machine.receive ──► content into the user's memory ──► machine.placed
//
// reader.go and writer.go have the steps.
type conn struct {
	q    *qp
	ctx  context.Context // ends with close
	stop context.CancelFunc

	// dead ends all accesses to memory. An access holds readAccess or writeAccess, and looks at
	// dead first. Only copies and system calls that do not block happen meanwhile.
	dead        atomic.Bool
	readAccess  sync.Mutex
	writeAccess sync.Mutex

	wroteAt atomic.Int64 // time of the last content that the kernel took, as q.now

	attachMu sync.Mutex // guards the fields below
	in, out  net.Conn   // nil: not connected
	ended    bool

	reader reader
	writer writer
}

func newConn(q *qp) *conn {
	c := &conn{q: q}
	c.ctx, c.stop = context.WithCancel(context.Background())
	c.reader.conn, c.writer.conn = c, c
	c.writer.wake = make(chan struct{}, 1)
	return c
}

// waitForAccess returns when the accesses that are under way have ended.
func (c *conn) waitForAccess() {
	c.waitForReader()
	c.waitForWriter()
}

// waitForReader returns when the reader's access that is under way has ended.
func (c *conn) waitForReader() {
	c.readAccess.Lock()
	c.readAccess.Unlock() //nolint:staticcheck // an empty section waits for the owner
}

// waitForWriter does the same for the writer.
func (c *conn) waitForWriter() {
	c.writeAccess.Lock()
	c.writeAccess.Unlock() //nolint:staticcheck // likewise
}

// errTaken refuses a second connection of a queue pair.
var errTaken = errors.New("the queue pair is connected already")

// attach takes a proved socket, for reading, writing or both. When both are there, the frames
// begin. welcome tells the peer so, before anything else is sent.
func (c *conn) attach(s net.Conn, in, out bool, welcome func() error) error {
	c.attachMu.Lock()
	defer c.attachMu.Unlock()
	switch {
	case c.ended:
		return errors.New("the queue pair has ended")
	case in && c.in != nil || out && c.out != nil:
		return errTaken
	}
	if err := welcome(); err != nil {
		return err
	}
	if in {
		c.in = s
	}
	if out {
		c.out = s
	}
	if c.in == nil || c.out == nil {
		return nil
	}
	prepare(c.in, c.q.pd.dev.options.Busy)
	if c.out != c.in {
		prepare(c.out, c.q.pd.dev.options.Busy)
	}
	c.reader.init(c.in)
	c.writer.init(c.out)
	d := c.q.pd.dev
	d.wg.Go(c.reader.run)
	d.wg.Go(c.writer.run)
	return nil
}

// begin marks the queue pair as connected.
func (c *conn) begin() {
	q := c.q
	q.mu.Lock()
	if q.conn.Load() == c {
		q.machine.req.up = true
		q.machine.req.alive(q.now())
		q.armLocked()
	}
	q.mu.Unlock()
	c.kick()
}

// close closes the sockets. It does not wait for the goroutines; Device.Close does. A socket's close
// waits for who reads or writes it now, and that one may want the lock that the caller holds.
func (c *conn) close() {
	c.stop()
	c.attachMu.Lock()
	defer c.attachMu.Unlock()
	c.ended = true
	if c.in != nil || c.out != nil {
		in, out := c.in, c.out
		c.q.pd.dev.wg.Go(func() {
			if in != nil {
				in.Close()
			}
			if out != nil && out != in {
				out.Close()
			}
		})
	}
	c.wakeWriter()
}

// lose ends the connection for a reason. What is outstanding fails when the retries are over: a
// side that only waits is not told, as with every device.
func (c *conn) lose(why error) {
	q := c.q
	q.mu.Lock()
	if q.conn.Load() == c && !q.machine.req.lost {
		q.machine.req.lost = true
		if q.reason == nil {
			q.reason = why
		}
		q.armed = false // the deadline may be earlier now
		q.armLocked()
	}
	q.mu.Unlock()
	c.close()
}

// fail breaks the queue pair because of what the peer sent.
func (c *conn) fail(why error) {
	q := c.q
	q.mu.Lock()
	if q.conn.Load() == c && q.machine.IsUp() {
		q.reason = why
		q.machine.Fail(verbs.StatusBadResponse)
		q.Event(verbs.EventQPProtocol)
		q.failedLocked()
	}
	q.mu.Unlock()
	c.lose(why)
}

// socketOf returns the socket of a connection without TLS; nil if it has none. The owner of a
// listener may wrap its connections: a wrapper whose reads and writes are those of its socket has the
// method Socket.
func socketOf(c net.Conn) *net.TCPConn {
	switch c := c.(type) {
	case *net.TCPConn:
		return c
	case interface{ Socket() *net.TCPConn }:
		return c.Socket()
	}
	return nil
}

// withinHost reports whether both ends of a connection have the same address, so that one host has both.
func withinHost(local, remote net.Addr) bool {
	l, ok := local.(*net.TCPAddr)
	r, also := remote.(*net.TCPAddr)
	return ok && also && l.IP.Equal(r.IP)
}

// endStream ends what this side sends over a connection, if it can.
func endStream(c net.Conn) {
	if t := socketOf(c); t != nil {
		c = t
	}
	if c, ok := c.(interface{ CloseWrite() error }); ok {
		c.CloseWrite() //nolint:errcheck // the peer has closed it
	}
}
