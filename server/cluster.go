package server

import (
	"context"
	"fmt"
	"slices"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/server/internal/membership"
	"github.com/tryst-rdma/tryst/status"
)

// Cluster returns the present cluster, in the form of Config.Cluster; nil without one.
func (s *Server) Cluster() map[string][]string { return s.members.Spec().Lists() }

// SetCluster makes tasks, in the form of Config.Cluster, the cluster; tryst.Server.SetCluster has the rules.
func (s *Server) SetCluster(ctx context.Context, tasks map[string][]string) error {
	const method = "SetCluster"
	if err := ctx.Err(); err != nil {
		return status.From(err).WithPrefix(method)
	}
	spec, err := cluster.ParseLists(tasks)
	if err != nil {
		return status.From(err).WithPrefix(method)
	}
	var closing map[cluster.Task]<-chan struct{}
	change, err := s.members.Set(spec, func(c membership.Change) { closing = s.change(spec, c) })
	if err != nil {
		return status.From(err).WithPrefix(method)
	}
	for _, task := range change.Removed {
		if closing[task] == nil {
			continue
		}
		select {
		case <-closing[task]:
		case <-ctx.Done():
			return status.From(ctx.Err()).WithPrefix(fmt.Sprintf("%s: the cluster is set, but the channels to %v are not closed yet", method, task))
		}
	}
	return nil
}

// change has the parts of the process follow a change of the cluster: readers see the new one already, and refuse what is
// for tasks that have left it. It returns what is closed when the channels to those are.
//
//  1. Connections to their addresses are closed, and later ones go to the new addresses.
//  2. Steps with them end, before a transport would look for them.
//  3. What is kept for them is dropped, and their channels are closed.
//  4. Channels to tasks that have moved, or come, are made, and those that have come back learn what they had not learnt.
func (s *Server) change(spec *cluster.Spec, c membership.Change) map[cluster.Task]<-chan struct{} {
	s.log.Info("the cluster has changed", "added", c.Added, "removed", c.Removed, "moved", c.Moved, "tasks", spec.Len())
	if err := s.conns.SetSpec(spec); err != nil {
		s.log.Info("connections to tasks that left the cluster, or moved", "reason", err)
	}
	for _, task := range c.Removed {
		s.endStepsWith(task)
	}
	for step, err := range s.cache.ClusterChanged() {
		s.manager.AbortStep(step, err)
	}
	closing := make(map[cluster.Task]<-chan struct{})
	for _, task := range c.Removed {
		s.transport.Leave(task, taskLeft(task))
		if s.rdma != nil {
			closing[task] = s.rdma.Transport.Leave(task, taskLeft(task))
		}
	}
	for _, task := range c.Moved {
		s.incarnations.Move(task)
	}
	added := slices.DeleteFunc(slices.Clone(c.Added), func(t cluster.Task) bool { return t == s.task })
	for _, task := range added {
		s.transport.Joined(task)
	}
	if s.rdma != nil {
		for _, task := range c.Moved {
			address, _ := spec.Address(task)
			s.rdma.Transport.Moved(task, status.Errorf(status.Unavailable, "%v has moved to %s", task, address))
		}
		s.rdma.Transport.Joined(added...)
	}
	return closing
}

// endStepsWith ends the steps in which something is under way with a task that has left the cluster.
func (s *Server) endStepsWith(task cluster.Task) {
	err := taskLeft(task)
	s.manager.AbortWith(task, err)
	for _, step := range s.incarnations.Leave(task) {
		s.manager.AbortStep(step, err)
	}
}

// taskLeft is the error of what was under way with a task that has left the cluster.
func taskLeft(task cluster.Task) *status.Error {
	return status.Errorf(status.Aborted, "%v has left the cluster", task).WithKind(status.ErrTaskLeft)
}

// left reports whether a task has left the cluster, and is in none that a session began with.
func (n *node) left(task cluster.Task) bool {
	if !n.members.Now().Left(task) {
		return false
	}
	w := n.lateWorker.Load()
	return w == nil || !w.Names(task)
}

// nameLeft is left for the name of a process.
func (n *node) nameLeft(name string) bool {
	task, err := cluster.ParseTask(name)
	return err == nil && n.left(task)
}

// checkSent is called with the result of a send to a task that was in the cluster before it. If the task has left
// meanwhile, the change may not have seen the value: the step ends here.
func (s *Server) checkSent(before *membership.Snapshot, step int64, to cluster.Task, err error) error {
	if err != nil || s.members.Now() == before || !s.members.Now().Left(to) {
		return err
	}
	s.manager.AbortStep(step, taskLeft(to))
	return taskLeft(to)
}

// checkReceived is called with the error of a receive, or of the request for an incarnation, from a task that was in the
// cluster before it. The connections to a task that leaves are closed before the steps with it end, so the error may be
// that of the connection: the step ends here.
func (s *Server) checkReceived(ctx context.Context, step int64, from cluster.Task, err error) error {
	switch code := status.CodeOf(err); {
	case code != status.Cancelled && code != status.Unavailable, status.IsFromPeer(err),
		ctx.Err() != nil, s.manager.Err(step) != nil, !s.members.Now().Left(from):
		return err
	}
	s.manager.AbortStep(step, taskLeft(from))
	return taskLeft(from)
}
