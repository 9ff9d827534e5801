package server

import (
	"sync"

	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
)

// serverEnd is the end of a server, for its users: when Close is complete, so that a program which waits
// for it and exits cuts nothing off, or when the listener failed.
type serverEnd struct {
	once sync.Once
	done chan struct{}
}

func (e *serverEnd) end() { e.once.Do(func() { close(e.done) }) }

// Done returns a channel that is closed when Close is complete, or when the listener failed. Close it
// then as well, which ends its goroutines. Close waits for callbacks, so a callback must not wait for
// Done.
func (s *Server) Done() <-chan struct{} { return s.ended.done }

// Err returns nil until Done is closed. Then it returns the reason: Internal with the error of the
// listener, or Cancelled after Close.
func (s *Server) Err() error {
	select {
	case <-s.ended.done:
	default:
		return nil
	}
	if s.failure != nil {
		return s.listenerFailed()
	}
	return status.New(status.Cancelled, "the server was closed")
}

func (s *Server) listenerFailed() error {
	return status.Errorf(status.Internal, "the listener on %s failed: %w", s.address, s.failure)
}

// Done returns a channel that is closed when Close has ended the goroutines of the client. A client
// does not end by itself: it connects again.
func (c *Client) Done() <-chan struct{} { return c.done }

// Err returns nil until Done is closed, then Cancelled.
func (c *Client) Err() error {
	select {
	case <-c.done:
		return status.New(status.Cancelled, "the client was closed")
	default:
		return nil
	}
}

// StepEnd says when a step ends, and why.
type StepEnd struct{ r *rendezvous.BaseRemote }

// Done returns a channel that is closed when the step ends.
func (e *StepEnd) Done() <-chan struct{} { return e.r.Done() }

// Err returns nil until Done is closed, then the reason.
func (e *StepEnd) Err() error { return e.r.Err() }

// StepEnd returns the end of a step, which it begins. A step that has ended is closed at once.
func (s *Server) StepEnd(step int64) *StepEnd { return &StepEnd{s.manager.Find(step)} }

// StepErr returns the reason for the end of a step, nil when it has not ended. It does not begin the
// step.
func (s *Server) StepErr(step int64) error { return s.manager.Err(step) }
