package tcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/tryst-rdma/tryst/verbs/tcp/internal/frame"
)

// dial connects to the peer. It tries each address, and all of them once more after a pause.
func (c *conn) dial() {
	q := c.q
	d := q.pd.dev
	q.mu.Lock()
	names := frame.Names{From: q.number, To: q.peer.QPN, FromGID: d.gid, ToGID: q.peer.GID}
	targets := q.theirs.Addresses
	if q.peer.Target != "" {
		targets = []string{q.peer.Target}
	}
	self := q.isSelf()
	q.mu.Unlock()
	secrets := q.secrets(true)
	ctx, cancel := context.WithTimeout(c.ctx, connectTime)
	defer cancel()
	var last error
	for attempt := range 2 {
		if attempt > 0 {
			pause := time.NewTimer(dialPause)
			select {
			case <-pause.C:
			case <-ctx.Done():
				pause.Stop()
			}
		}
		for _, target := range targets {
			err := c.dialOne(ctx, target, &names, &secrets, self)
			if err == nil {
				return
			}
			if c.ctx.Err() != nil {
				return // the queue pair has ended
			}
			last = fmt.Errorf("the connection to %s failed: %w", target, err)
			if errors.Is(err, errRefused) && len(targets) == 1 {
				attempt = 1 // it will refuse again
			}
		}
		if attempt == 1 || ctx.Err() != nil {
			break
		}
	}
	c.lose(last)
}

// errRefused is wrapped by the words of a peer that refuses a connection.
var errRefused = errors.New("the peer refused it")

// dialOne connects to one address, and exchanges proofs.
func (c *conn) dialOne(ctx context.Context, target string, names *frame.Names, secrets *frame.Secrets, self bool) error {
	s, err := c.q.pd.dev.options.Dial(ctx, target)
	if err != nil {
		return err
	}
	err = c.greet(ctx, s, names, secrets)
	if err == nil {
		err = c.attach(s, !self, true, func() error { return s.SetDeadline(time.Time{}) })
	}
	if err != nil {
		s.Close()
	}
	return err
}

// greet sends the greeting and checks the reply.
func (c *conn) greet(ctx context.Context, s net.Conn, names *frame.Names, secrets *frame.Secrets) error {
	until, _ := ctx.Deadline()
	if err := s.SetDeadline(until); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { s.SetDeadline(time.Unix(1, 0)) }) //nolint:errcheck // it ends the wait
	defer stop()
	g := frame.Greeting{Names: *names, Proof: frame.Connecting(names, secrets)}
	if _, err := s.Write(g.Append(nil)); err != nil {
		return err
	}
	head := make([]byte, frame.ReplyHeadLen)
	if _, err := io.ReadFull(s, head); err != nil {
		return fmt.Errorf("no reply came: %w", err)
	}
	var r frame.Reply
	n, err := r.ParseHead(head)
	if err != nil {
		return err
	}
	if n > 0 {
		reason := make([]byte, n)
		if _, err := io.ReadFull(s, reason); err != nil {
			return fmt.Errorf("the reply is incomplete: %w", err)
		}
		return fmt.Errorf("%w: %q", errRefused, reason)
	}
	if want := frame.Accepting(names, secrets); !want.Equal(&r.Proof) {
		return errors.New("the proof of the peer is wrong: another process took the connection")
	}
	if !stop() {
		return ctx.Err()
	}
	return nil
}
