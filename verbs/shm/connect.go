//go:build linux

package shm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tryst-rdma/tryst/verbs"
)

// connect connects to the peer, and runs in a goroutine of the device.
func (q *qp) connect(ctx context.Context, attempt uint64) {
	q.mu.Lock()
	peer, e := q.peer, q.ends
	q.mu.Unlock()
	l, err := q.dialAndProve(ctx, &peer, &e)
	for endedEarly(err) && ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-time.After(100 * retryDelay):
			l, err = q.dialAndProve(ctx, &peer, &e)
		}
	}
	if err == nil && !q.attach(l, attempt) {
		return
	}
	if err == nil || ctx.Err() != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.machine.Closed() || q.attempt != attempt || q.machine.State() == verbs.StateErr {
		return
	}
	q.failed = err
	q.pd.dev.logger.Info("shm: a queue pair has no connection", "queue_pair", q.number.String(), "peer_queue_pair", q.ends.qpns[1].String(), "reason", err)
	if gone := (*goneError)(nil); errors.As(err, &gone) {
		return // requests end with their time, as if the peer did not answer
	}
	q.refused = true
	if !q.machine.Idle() {
		q.machine.Fail(verbs.StatusRetryExceeded)
	}
}

// endedEarly reports whether the peer has ended a connection without a word. It does so with the
// oldest one when it has too many.
func endedEarly(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.EPIPE)
}

// dialAndProve is the connector's side of the handshake.
func (q *qp) dialAndProve(ctx context.Context, peer *endpointData, e *ends) (l *connection, err error) {
	d := q.pd.dev
	c, err := d.dial(ctx, peer)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { c.SetDeadline(time.Unix(1, 0)) }) //nolint:errcheck // a closed connection needs none
	defer stop()
	defer func() {
		if err != nil && l == nil { // a connection has closed the connection itself
			d.hangUp(c, verbs.GID{})
		}
	}()
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	h := newHello(e, d.userNS)
	body := h.body()
	first := append(body, e.proof(connector, body)...)
	if _, err := c.Write(first); err != nil {
		return nil, err
	}
	buf := make([]byte, maxPacket)
	n, err := receive(raw, buf)
	if err == nil && n == 0 {
		err = io.EOF
	}
	if err != nil {
		return nil, fmt.Errorf("waiting for the peer's answer: %w", err)
	}
	userNS, err := checkWelcome(buf[:n], first, e)
	if err != nil {
		return nil, err
	}
	if err := d.checkUser(c, userNS); err != nil {
		return nil, err
	}
	if err := d.allowRights(raw); err != nil {
		return nil, err
	}
	own, err := d.newRing(q.entrySize)
	if err != nil {
		return nil, err
	}
	l = newConnection(d, c, own, e.gids[1])
	l.raw = raw
	if err = l.sendRing(); err == nil {
		err = l.receiveRing(ctx, buf)
	}
	if err == nil && !stop() {
		err = ctx.Err() // the deadline has made the connection useless
	}
	if err == nil {
		err = c.SetDeadline(time.Time{})
	}
	if err != nil {
		l.free()
		return l, err
	}
	return l, nil
}

// welcome is the acceptor's side of the handshake. After an error the caller refuses the connection.
func (d *device) welcome(ctx context.Context, c *net.UnixConn) error {
	stop := context.AfterFunc(ctx, func() { c.SetDeadline(time.Unix(1, 0)) }) //nolint:errcheck // a closed connection needs none
	defer stop()
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	buf := make([]byte, maxPacket)
	n, err := receive(raw, buf)
	if err != nil {
		return fmt.Errorf("waiting for the first message: %w", err)
	}
	first := append([]byte(nil), buf[:n]...)
	h, err := parseHello(first)
	if err != nil {
		return err
	}
	q, e, attempt, err := d.meant(ctx, &h)
	if err != nil {
		return err
	}
	if err := checkHello(first, &h, &e); err != nil {
		return err
	}
	if err := d.checkUser(c, h.userNS); err != nil {
		return err
	}
	if err := d.allowRights(raw); err != nil {
		return err
	}
	own, err := d.newRing(q.entrySize)
	if err != nil {
		return err
	}
	l := newConnection(d, c, own, e.gids[0])
	l.raw = raw
	if _, err = c.Write(welcomeFor(first, d.userNS, &e)); err == nil {
		if err = l.receiveRing(ctx, buf); err == nil {
			err = l.sendRing()
		}
	}
	if err == nil && !stop() {
		err = ctx.Err() // the deadline has made the connection useless
	}
	if err == nil {
		err = c.SetDeadline(time.Time{})
	}
	if err != nil {
		d.tellRefusal(ctx, c, err)
		l.free()
		return nil
	}
	q.attach(l, attempt) // or frees it, if the queue pair has changed meanwhile
	return nil
}

// meant returns the queue pair that a hello means, when it knows its peer.
func (d *device) meant(ctx context.Context, h *hello) (q *qp, e ends, attempt uint64, err error) {
	if h.gids[1] != d.gid {
		return nil, e, 0, fmt.Errorf("the connection is meant for process %v, this is %v", h.gids[1], d.gid)
	}
	if q = d.find(h.qpns[1]); q == nil {
		return nil, e, 0, gonef("there is no QP %v", h.qpns[1])
	}
	q.mu.Lock()
	ready := q.ready
	q.mu.Unlock()
	select {
	case <-ready:
	case <-ctx.Done():
		return nil, e, 0, gonef("QP %v does not know its peer yet", h.qpns[1])
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.machine.Closed() || !q.machine.IsUp() || q.role != acceptor || q.connection != nil {
		return nil, e, 0, gonef("QP %v in %v waits for no connection", h.qpns[1], q.machine.State())
	}
	return q, q.ends, q.attempt, nil
}

// newRing creates the memfd of a ring.
func (d *device) newRing(entrySize int) (*file, error) {
	f, err := newMemfd(ringSize(entrySize))
	if err != nil {
		return nil, err
	}
	putRingHeader(f.mem, entrySize)
	return f, nil
}

// sendRing passes the descriptor of the own ring.
func (l *connection) sendRing() error {
	m := fileMessage(kindRing, 0)
	oob := syscall.UnixRights(l.own.fd)
	n, _, err := l.conn.WriteMsgUnix(m[:], oob, nil)
	if err == nil && n != len(m) {
		err = fmt.Errorf("%d of %d bytes were sent", n, len(m))
	}
	return err
}

// receiveRing maps the ring of the peer. After an error the packet with it may still be taken.
func (l *connection) receiveRing(ctx context.Context, buf []byte) error {
	n, err := receive(l.raw, buf)
	switch {
	case errors.Is(err, errRights):
	case err != nil:
		return fmt.Errorf("waiting for the peer's ring: %w", err)
	case n == 0:
		return fmt.Errorf("waiting for the peer's ring: %w", io.EOF)
	case n > 2 && buf[0] == kindRefused:
		return parseRefusal(buf[:n])
	default:
		return errors.New("the peer passed no ring")
	}
	t := l.dev.take(l.raw, l.peerGID, func() {})
	l.taking = t
	select {
	case <-t.done:
		l.taking = nil
	case <-ctx.Done():
		return fmt.Errorf("mapping the peer's ring: %w", ctx.Err())
	}
	if t.err != nil {
		return t.err
	}
	l.ring = t.file
	if t.packet[0] != kindRing {
		return errors.New("the peer passed a descriptor that is no ring")
	}
	l.peer = l.ring.mem
	return guardErr(func() error {
		l.entrySize, err = checkRing(l.peer)
		return err
	})
}

// attach gives the connection to the queue pair and starts to work on it. If the queue pair no longer
// wants it, attach frees it and returns false.
func (q *qp) attach(l *connection, attempt uint64) bool {
	q.mu.Lock()
	if q.machine.Closed() || q.attempt != attempt || q.connection != nil || !q.machine.IsUp() {
		q.mu.Unlock()
		l.free()
		return false
	}
	q.startLocked(l)
	wake := q.publishLocked()
	q.mu.Unlock()
	wake.wake()
	return true
}

// startLocked starts the goroutine that works on a connection.
func (q *qp) startLocked(l *connection) {
	q.connection = l
	q.live.Store(l)
	if q.patience != nil {
		q.patience.Stop()
		q.patience = nil
	}
	go q.run(l) // ends soon after takeConnection
}

// connectToItselfLocked connects the queue pair to itself, without a socket.
func (q *qp) connectToItselfLocked(op string) error {
	own, err := q.pd.dev.newRing(q.entrySize)
	if err != nil {
		return &verbs.Error{Op: op, Object: q.machine.Object(), Err: err}
	}
	l := newConnection(q.pd.dev, nil, own, q.pd.dev.gid)
	l.self, l.peer, l.entrySize = make(chan struct{}, 1), own.mem, q.entrySize
	q.startLocked(l)
	return nil
}

// mapOwn maps a memfd for a queue pair that is connected to itself.
func (q *qp) mapOwn(l *connection, f *file) error {
	fd, err := unix.FcntlInt(uintptr(f.fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return err
	}
	m, err := q.pd.dev.maps.add(fd, q.pd.dev.gid)
	if err != nil {
		return err
	}
	l.selfFiles.Store(f.id, m)
	return nil
}
