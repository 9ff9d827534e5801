package grpctransport

import (
	"context"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/identity"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/transport"
)

// accept checks the identity that a request claims for its caller. If it is accepted,
// accept binds the connection to the requester and closes the channel generations up to
// left, 0 for none. A refused request has no effect.
func (s *service) accept(ctx context.Context, a transport.Process, left uint64) error {
	c, version := connectionOf(ctx), uint64(0)
	if s.Version != nil {
		version = s.Version()
	}
	bound, address := c.isBound(a, version), ""
	if !bound { // a bound requester has passed these checks
		if err := s.checkName(ctx, a); err != nil {
			return err
		}
		address = identity.Address(ctx)
	}
	leave := func() {}
	if left != 0 && s.LeftGeneration != nil {
		var err error
		if leave, err = s.LeftGeneration(a, left); err != nil {
			return err
		}
	}
	if err := s.Cache.Introduce(ctx, a, address); err != nil {
		return err
	}
	if !bound {
		if err := c.bind(s.Cache, a, version); err != nil {
			return err
		}
	}
	leave()
	return nil
}

// checkName refuses a requester whose name is invalid or not covered by the certificate of
// the connection. It changes nothing.
func (s *service) checkName(ctx context.Context, a transport.Process) error {
	task, err := parseName(a.Name)
	if err != nil {
		return err
	}
	host := ""
	if s.Host != nil {
		host, _ = s.Host(task)
	}
	return callersOf(ctx).Check(task, host)
}

// parseName parses the name of a requester. It refuses a task name that is not in the form
// of PROTOCOL.md section 2, because two spellings of one task would be two requesters.
func parseName(name string) (cluster.Task, error) {
	if n := len(name); n > transport.MaxProcessName {
		return cluster.Task{}, status.Errorf(status.InvalidArgument, "the requester's name has %d bytes; the limit is %d", n, transport.MaxProcessName)
	}
	task, err := cluster.ParseTask(name)
	switch {
	case err != nil:
		return cluster.Task{}, status.Errorf(status.InvalidArgument, "the requester's name must be a task name: %w", err)
	case task.String() != name:
		return cluster.Task{}, status.Errorf(status.InvalidArgument, "the requester's name is %q, but must be the full task name, %q", name, task)
	}
	return task, nil
}
