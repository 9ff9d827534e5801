package server

import (
	"context"
	"strings"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/rendezvous"
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
// cluster, and a device that the task does not have, is NotFound, as for Recv.
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
// which waits for a peer that is not up yet for at most the peer timeout.
func (s *Server) RecvAsync(ctx context.Context, step int64, from, name string, done func(rendezvous.Value, error)) {
	src, err := device(from)
	if err == nil {
		err = s.checkSource(name, src)
	}
	if err != nil {
		done(rendezvous.Value{}, err)
		return
	}
	recv := func(incarnation uint64) {
		key, err := rendezvous.NewKey(src, incarnation, s.Device(), name, rendezvous.FrameIter{})
		if err != nil {
			done(rendezvous.Value{}, err)
			return
		}
		s.manager.Find(step).RecvAsync(ctx, key, rendezvous.Args{}, func(v rendezvous.Value, _ rendezvous.Args, err error) {
			s.noteResult(src, incarnation, err)
			done(v, err)
		})
	}
	if n, ok := s.known(src); ok {
		recv(n)
		return
	}
	s.mu.Lock()
	ending := s.ending
	if !ending {
		s.work.Add(1)
	}
	s.mu.Unlock()
	if ending {
		recv(0) // fails: every step has ended
		return
	}
	go func() {
		defer s.work.Done()
		n, err := s.incarnationOf(ctx, step, src)
		if err != nil {
			done(rendezvous.Value{}, err)
			return
		}
		recv(n)
	}()
}

// Recv is RecvAsync that waits. Over verbs the calling goroutine polls for its own value, so
// Recv has less latency than RecvAsync.
func (s *Server) Recv(ctx context.Context, step int64, from, name string) (v rendezvous.Value, err error) {
	src, err := device(from)
	if err == nil {
		err = s.checkSource(name, src)
	}
	if err != nil {
		return v, err
	}
	incarnation, ok := s.known(src)
	if !ok {
		if incarnation, err = s.incarnationOf(ctx, step, src); err != nil {
			return v, err
		}
	}
	key, err := rendezvous.NewKey(src, incarnation, s.Device(), name, rendezvous.FrameIter{})
	if err != nil {
		return v, err
	}
	v, err = s.manager.Find(step).Recv(ctx, key, rendezvous.Args{})
	s.noteResult(src, incarnation, err)
	return v, err
}

// device parses the name of a device, or of a task, which means its CPU:0.
func device(name string) (cluster.Device, error) {
	if strings.Contains(name, "/device:") || strings.Contains(strings.ToLower(name), "/cpu:") {
		return cluster.ParseDevice(name)
	}
	task, err := cluster.ParseTask(name)
	return worker.Device(task), err
}
