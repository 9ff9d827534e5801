package server

import (
	"context"
	"strings"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/worker"
)

// Rendezvous returns the rendezvous of a step, which is made on first use. That of a step
// that has ended is aborted.
func (s *Server) Rendezvous(step int64) rendezvous.Rendezvous { return s.manager.Find(step) }

// AbortStep ends a step with err: waiting and later calls fail with it, here and at
// peers.
func (s *Server) AbortStep(step int64, err error) { s.manager.AbortStep(step, err) }

// EndStep cleans up a step. Its id must not be used again.
func (s *Server) EndStep(step int64) { s.worker.EndStep(step) }

// Send sends a tensor under a name to a task or device; see rendezvous.Send. The name
// becomes the edge name of the key, with frame and iteration 0. A task that is not in the
// cluster, and a device that the task is known not to have, is NotFound, as for Recv.
func (s *Server) Send(step int64, to, name string, t *tensor.Tensor, dead bool) error {
	dst, err := device(to)
	if err == nil {
		err = s.checkDestination(name, dst)
	}
	if err != nil {
		return err
	}
	key, err := rendezvous.NewKey(s.Device(), s.incarnation, dst, name, rendezvous.FrameIter{})
	if err != nil {
		return err
	}
	return s.manager.Find(step).Send(key, rendezvous.Args{}, t, dead)
}

// RecvAsync receives the next value that a task or device sends here under a name. The
// key contains the incarnation of the sender. It is requested before the first receive,
// which waits for a peer that is not up yet for at most the peer timeout, and again when
// the sender may have been restarted.
func (s *Server) RecvAsync(ctx context.Context, step int64, from, name string, done func(rendezvous.Value, error)) {
	src, err := device(from)
	if err == nil {
		err = s.checkSource("RecvAsync", name, src)
	}
	if err != nil {
		done(rendezvous.Value{}, err)
		return
	}
	n, ok := s.known(src)
	if !ok {
		s.requestThenRecv(ctx, step, src, func(n uint64, err error) {
			if err != nil {
				done(rendezvous.Value{}, s.named(err, step, "RecvAsync", src, name))
				return
			}
			s.recvAsync(ctx, step, src, n, name, done)
		})
		return
	}
	s.recvAsync(ctx, step, src, n, name, func(v rendezvous.Value, err error) {
		if !s.outdated(src, err) {
			done(v, err)
			return
		}
		s.requestThenRecv(ctx, step, src, func(present uint64, _ error) {
			if present == n || present == 0 {
				done(v, err) // the first error says what was wrong
				return
			}
			s.recvAsync(ctx, step, src, present, name, done)
		})
	})
}

// recvAsync receives under a key with the given incarnation of the sender.
func (s *Server) recvAsync(ctx context.Context, step int64, src cluster.Device, incarnation uint64, name string, done func(rendezvous.Value, error)) {
	key, err := rendezvous.NewKey(src, incarnation, s.Device(), name, rendezvous.FrameIter{})
	if err != nil {
		done(rendezvous.Value{}, err)
		return
	}
	s.manager.Find(step).RecvAsync(ctx, key, rendezvous.Args{}, func(v rendezvous.Value, _ rendezvous.Args, err error) {
		s.noteResult(ctx, step, src, incarnation, err)
		done(v, err)
	})
}

// requestThenRecv requests the incarnation of a device and calls recv with it, on a goroutine of
// the server. A server that is closing calls recv at once, with 0.
func (s *Server) requestThenRecv(ctx context.Context, step int64, src cluster.Device, recv func(uint64, error)) {
	s.mu.Lock()
	ending := s.ending
	if !ending {
		s.work.Add(1)
	}
	s.mu.Unlock()
	if ending {
		recv(0, nil) // fails: every step has ended
		return
	}
	go func() {
		defer s.work.Done()
		recv(s.incarnationOf(ctx, step, src))
	}()
}

// Recv is RecvAsync that waits. Over verbs the calling goroutine polls for its own value, so
// Recv has less latency than RecvAsync.
func (s *Server) Recv(ctx context.Context, step int64, from, name string) (v rendezvous.Value, err error) {
	src, err := device(from)
	if err == nil {
		err = s.checkSource("Recv", name, src)
	}
	if err != nil {
		return v, err
	}
	n, ok := s.known(src)
	if !ok {
		if n, err = s.incarnationOf(ctx, step, src); err != nil {
			return v, s.named(err, step, "Recv", src, name)
		}
	}
	v, err = s.recvFrom(ctx, step, src, n, name)
	if ok && s.outdated(src, err) {
		if present, askErr := s.incarnationOf(ctx, step, src); askErr == nil && present != n {
			return s.recvFrom(ctx, step, src, present, name)
		}
	}
	return v, err
}

// recvFrom is recvAsync that waits.
func (s *Server) recvFrom(ctx context.Context, step int64, src cluster.Device, incarnation uint64, name string) (v rendezvous.Value, err error) {
	key, err := rendezvous.NewKey(src, incarnation, s.Device(), name, rendezvous.FrameIter{})
	if err != nil {
		return v, err
	}
	v, err = s.manager.Find(step).Recv(ctx, key, rendezvous.Args{})
	s.noteResult(ctx, step, src, incarnation, err)
	return v, err
}

// named returns the error of a receive that fails before its key is known: it names the method
// and describes the key. The error that ended the step stays as it is.
func (s *Server) named(err error, step int64, method string, src cluster.Device, name string) error {
	if s.manager.Err(step) != nil {
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
	return worker.Device(task), err
}
