package tcp

import (
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/tcp/internal/frame"
)

// Magic is what every connection of a queue pair begins with. A listener that serves other
// protocols too looks for it, and hands the connection to Accept.
const Magic = frame.Magic

// Acceptor is a device that takes connections from the owner of a listener. Opened devices of
// this package implement it.
type Acceptor interface {
	// Accept takes a connection, after the handshake of TLS if it has one. It does not block,
	// and closes the connection if it is not one of the device's queue pairs. If bytes were
	// read from the connection already, pass Replay.
	Accept(net.Conn)
}

// Replay returns a connection of which the first bytes were read already: reads return them
// first. It is meant for Accept, which unwraps it.
func Replay(c net.Conn, first []byte) net.Conn { return &replayed{Conn: c, first: first} }

type replayed struct {
	net.Conn
	first []byte
}

func (r *replayed) Read(b []byte) (int, error) {
	if len(r.first) > 0 {
		n := copy(b, r.first)
		r.first = r.first[n:]
		return n, nil
	}
	return r.Conn.Read(b)
}

// Accept implements Acceptor.
func (d *device) Accept(c net.Conn) {
	d.acceptMu.Lock()
	defer d.acceptMu.Unlock()
	if d.deaf || len(d.unproven) >= maxUnproven {
		c.Close()
		return
	}
	d.unproven[c] = struct{}{}
	d.wg.Go(func() {
		err := d.welcome(c)
		d.acceptMu.Lock()
		delete(d.unproven, c)
		d.acceptMu.Unlock()
		if err != nil {
			d.log.Debug("tcp: a connection was refused", "address", c.RemoteAddr().String(), "reason", err)
			c.Close()
		}
	})
}

// refuseAll closes the connections without a greeting, and refuses all that come.
func (d *device) refuseAll() {
	d.acceptMu.Lock()
	defer d.acceptMu.Unlock()
	d.deaf = true
	for c := range d.unproven {
		c.Close()
	}
}

// welcome reads the greeting of a connection, and gives it to its queue pair.
func (d *device) welcome(s net.Conn) error {
	until := time.Now().Add(d.options.GreetingTime)
	if err := s.SetDeadline(until); err != nil {
		return err
	}
	b := make([]byte, frame.GreetingLen)
	if n, err := io.ReadFull(s, b); err != nil {
		return fmt.Errorf("no greeting came, but %d bytes: %w", n, err)
	}
	var g frame.Greeting
	if err := g.Parse(b); err != nil {
		return err // another protocol: it would not understand the reason
	}
	q, c, proof, err := d.recognize(&g, until)
	if err == nil {
		if r, ok := s.(*replayed); ok && len(r.first) == 0 {
			s = r.Conn
		}
		err = c.attach(s, true, !q.isSelf(), func() error {
			reply := frame.Reply{Proof: proof}
			if _, err := s.Write(reply.Append(nil)); err != nil {
				return err
			}
			return s.SetDeadline(time.Time{})
		})
	}
	if err != nil {
		reply := frame.Reply{Reason: err.Error()}
		s.Write(reply.Append(nil)) //nolint:errcheck // it is closed next
	}
	return err
}

// recognize returns the queue pair that a greeting is for. While that is not in RTR it waits:
// the peer may be ahead.
func (d *device) recognize(g *frame.Greeting, until time.Time) (*qp, *conn, frame.Proof, error) {
	if g.Names.ToGID != d.gid {
		return nil, nil, frame.Proof{}, fmt.Errorf("this is device %v, not %v: the address leads to another process", d.gid, g.Names.ToGID)
	}
	timeout := time.NewTimer(time.Until(until))
	defer timeout.Stop()
	for {
		q := d.find(g.Names.To)
		if q == nil {
			return nil, nil, frame.Proof{}, fmt.Errorf("device %v has no queue pair %v", d.gid, g.Names.To)
		}
		c, changed, err := q.recognize(g)
		if err != nil || c != nil {
			names, secrets := g.Names, q.secrets(false)
			return q, c, frame.Accepting(&names, &secrets), err
		}
		select {
		case <-changed:
		case <-timeout.C:
			return nil, nil, frame.Proof{}, fmt.Errorf("queue pair %v was not connected in time", g.Names.To)
		case <-d.Done():
			return nil, nil, frame.Proof{}, errors.New("the device was closed")
		}
	}
}

// recognize checks a greeting. Before RTR it returns no connection, and a channel that is closed
// when to look again.
func (q *qp) recognize(g *frame.Greeting) (*conn, <-chan struct{}, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.machine.Closed() || q.machine.State() == verbs.StateReset || q.machine.State() == verbs.StateErr:
		return nil, nil, fmt.Errorf("queue pair %v is in %v", q.number, q.machine.State())
	case q.machine.State() == verbs.StateInit:
		return nil, q.changed, nil
	case q.peer.GID != g.Names.FromGID || q.peer.QPN != g.Names.From:
		return nil, nil, fmt.Errorf("queue pair %v has another peer, %v", q.number, q.peer)
	case q.connects() && !q.isSelf():
		return nil, nil, fmt.Errorf("queue pair %v connects itself: its secret is the lower one", q.number)
	}
	secrets := frame.Secrets{From: q.theirs.Secret, To: q.secret}
	if want := frame.Connecting(&g.Names, &secrets); !want.Equal(&g.Proof) {
		return nil, nil, fmt.Errorf("the proof for queue pair %v is wrong: its offers are others", q.number)
	}
	return q.conn.Load(), nil, nil
}

// secrets returns both secrets, by the direction of the connection.
func (q *qp) secrets(connecting bool) frame.Secrets {
	q.mu.Lock()
	defer q.mu.Unlock()
	if connecting {
		return frame.Secrets{From: q.secret, To: q.theirs.Secret}
	}
	return frame.Secrets{From: q.theirs.Secret, To: q.secret}
}
