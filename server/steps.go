package server

import (
	"context"
	"strings"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/worker"
)

// Rendezvous returns the table of a step, made on first use. That of a step
// which has ended is aborted.
func (s *Server) Rendezvous(step int64) rendezvous.Rendezvous { return s.manager.Find(step) }

// AbortStep ends a step with err: what waits in it, here and at peers, and all
// later calls fail with it.
func (s *Server) AbortStep(step int64, err error) { s.manager.AbortStep(step, err) }

// EndStep cleans a step up. Its id is not to be used again.
func (s *Server) EndStep(step int64) { s.worker.EndStep(step) }

// Send puts a tensor under a name for a task or device; see rendezvous.Send. The
// name is the key's edge name, outside of loops.
func (s *Server) Send(step int64, to, name string, t *tensor.Tensor, dead bool) error {
	dst, err := device(to)
	if err != nil {
		return err
	}
	key, err := rendezvous.NewKey(s.Device(), s.incarnation, dst, name, rendezvous.FrameIter{})
	if err != nil {
		return err
	}
	return s.manager.Find(step).Send(key, rendezvous.Args{}, t, dead)
}

// RecvAsync asks a task or device for the next value that it sends here under a
// name. The key of the value has the incarnation of the sender, which is asked
// for first and then remembered: a peer that is not up yet is waited for, at
// most the peer timeout.
func (s *Server) RecvAsync(ctx context.Context, step int64, from, name string, done func(rendezvous.Value, error)) {
	src, err := device(from)
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
		recv(0) // every step has ended
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

// Recv is RecvAsync that waits. Over verbs its caller polls for its own value and is
// handed nothing: it takes less time than a callback.
func (s *Server) Recv(ctx context.Context, step int64, from, name string) (v rendezvous.Value, err error) {
	src, err := device(from)
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

// device parses a device name, or a task name, which means its CPU:0.
func device(name string) (cluster.Device, error) {
	if strings.Contains(name, "/device:") || strings.Contains(strings.ToLower(name), "/cpu:") {
		return cluster.ParseDevice(name)
	}
	task, err := cluster.ParseTask(name)
	return worker.Device(task), err
}
