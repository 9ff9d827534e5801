package grpctransport

import (
	"context"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/transport"
	"github.com/tryst-rdma/tryst/transport/identity"
)

// accept checks what a request claims about its caller, and then lets it take
// effect: the connection is one of the asker's from now on, and the generation
// that the asker has left is closed. A request that is refused has no effect.
func (s *service) accept(ctx context.Context, a transport.Process, left uint64) error {
	c := connectionOf(ctx)
	tied, source := c.carries(a), ""
	if !tied { // else this was looked at before
		if err := s.mayBe(ctx, a); err != nil {
			return err
		}
		source = identity.Source(ctx)
	}
	leave := func() {}
	if left != 0 && s.LeftGeneration != nil {
		var err error
		if leave, err = s.LeftGeneration(a, left); err != nil {
			return err
		}
	}
	if err := s.Cache.Introduce(ctx, a, source); err != nil {
		return err
	}
	if !tied {
		if err := c.tie(s.Cache, a); err != nil {
			return err
		}
	}
	leave()
	return nil
}

// mayBe refuses an asker whose name the certificate of its caller does not cover.
// It has no effect.
func (s *service) mayBe(ctx context.Context, a transport.Process) error {
	task, err := parseName(a.Name)
	if err != nil {
		return err
	}
	host := ""
	if s.Host != nil {
		host, _ = s.Host(task)
	}
	return identity.Of(ctx).Check(task, host)
}

// parseName refuses what is no task name, or a task name in another form than
// PROTOCOL.md section 2 writes it: two names of one task would be two askers.
func parseName(name string) (cluster.Task, error) {
	if n := len(name); n > transport.MaxProcessName {
		return cluster.Task{}, status.Errorf(status.InvalidArgument, "the name of an asker has %d bytes; at most %d are possible", n, transport.MaxProcessName)
	}
	task, err := cluster.ParseTask(name)
	switch {
	case err != nil:
		return cluster.Task{}, status.Errorf(status.InvalidArgument, "the name of an asker must be a task name: %w", err)
	case task.String() != name:
		return cluster.Task{}, status.Errorf(status.InvalidArgument, "the asker calls itself %q; the full name of that task is %q", name, task)
	}
	return task, nil
}
