package server

import (
	"context"
	"strings"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// Rendezvous returns the rendezvous of a step, which is made on first use. That of a step
// that has ended is aborted.
func (s *Server) Rendezvous(step int64) rendezvous.Rendezvous { return s.manager.Find(step) }

// AbortStep ends a step with err, as tryst.Step.Abort does; tryst.Step says what peers learn.
func (s *Server) AbortStep(step int64, err error) { s.manager.AbortStep(step, err) }

// EndStep cleans up a step. Its id must not be used again.
func (s *Server) EndStep(step int64) { s.worker.EndStep(step) }

// Send sends a tensor under a name to a task or device; see rendezvous.Send. The name
// becomes the edge name of the key, with frame and iteration 0. A task that is not in the
// cluster, and a device that the task is known not to have, is NotFound, as for Recv.
func (s *Server) Send(step int64, to, name string, t *tensor.Tensor, dead bool) error {
	e, in := Edge{s: s, name: name}, s.members.Now()
	if err := e.makeOut("Send", to); err != nil {
		return err
	}
	return s.checkSent(in, step, e.peer.Task, s.manager.Find(step).Send(e.out, rendezvous.Args{}, t, dead))
}

// RecvAsync receives the next value that a task or device sends here under a name. The
// key contains the incarnation of the sender. It is requested before the first receive,
// which waits for a peer that is not up yet for at most the peer timeout, and again when
// the sender may have been restarted.
//
// done runs exactly once, on a goroutine that is neither the caller's nor the sender's. It
// may block, send, receive and end the step. Close waits for it.
func (s *Server) RecvAsync(ctx context.Context, step int64, from, name string, done func(rendezvous.Value, error)) {
	e := &Edge{s: s, name: name}
	if err := e.setSource("RecvAsync", from); err != nil {
		s.callbacks.run(func() { done(rendezvous.Value{}, err) })
		return
	}
	e.RecvAsync(ctx, step, done)
}

// Recv is RecvAsync that waits. Over verbs the calling goroutine polls for its own value, so
// Recv has less latency than RecvAsync.
func (s *Server) Recv(ctx context.Context, step int64, from, name string) (rendezvous.Value, error) {
	e := Edge{s: s, name: name}
	if err := e.setSource("Recv", from); err != nil {
		return rendezvous.Value{}, err
	}
	return e.Recv(ctx, step)
}

// named returns the error of a receive that fails before its key is known: it names the method
// and describes the key. The error that ended the step stays as it is.
func (s *Server) named(ctx context.Context, err error, step int64, method string, src cluster.Device, name string) error {
	if err = s.checkReceived(ctx, step, src.Task, err); s.manager.Err(step) != nil {
		return err
	}
	return status.From(err).WithPrefix(method + " of " + describe(name, src, s.Device()))
}

// device parses the name of a device, or of a task, which means its CPU:0.
func device(name string) (cluster.Device, error) {
	if strings.Contains(name, "/device:") || strings.Contains(strings.ToLower(name), "/cpu:") {
		return cluster.ParseDevice(name)
	}
	task, err := cluster.ParseTask(name)
	return cluster.DeviceOf(task), err
}
