package worker

import (
	"strings"

	"github.com/tryst-rdma/tryst/cluster"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/status"
)

// What a worker reads of the ConfigProto of a session: experimental.collective_group_leader. All else is for
// the master, or for the process: device_count does not change the devices of a task that runs, as in
// TensorFlow (docs/tensorflow.md).

// leaderOf returns the leader of collective operations that a config names; the zero Task when it names
// none.
func leaderOf(c *tfpb.ConfigProto) (cluster.Task, error) {
	name := c.GetExperimental().GetCollectiveGroupLeader()
	if name == "" {
		return cluster.Task{}, nil
	}
	t, err := cluster.ParseTask(name)
	if err != nil {
		return cluster.Task{}, status.From(err).WithPrefix("experimental.collective_group_leader")
	}
	return t, nil
}

// checkLeader refuses a graph with collective operations whose master has another leader than this
// process: the members of a group would ask different tasks for it, and wait for good. In TensorFlow too
// the leader is that of the process. The tasks of a propagated cluster have other names.
func (w *Worker) checkLeader(s *session, req *tfpb.RegisterGraphRequest) error {
	leader, err := leaderOf(req.GetConfigProto())
	if err != nil {
		return status.From(err).WithPrefix("RegisterGraph: config_proto")
	}
	if leader == (cluster.Task{}) {
		leader = s.leader
	}
	if w.opts.Collectives == nil || s.peers != nil || leader == (cluster.Task{}) || leader == w.opts.Collectives.Leader() {
		return nil
	}
	name := collectiveNode(req.GetGraphDef())
	if name == "" {
		return nil
	}
	return status.Errorf(status.FailedPrecondition,
		"RegisterGraph: node %q is a collective operation, whose leader is %v by collective_group_leader of the session's config, and %v by collective-leader of this worker: set both to the same task",
		name, leader, w.opts.Collectives.Leader())
}

// collectiveNode returns the name of a node that is a collective operation; "" when there is none.
func collectiveNode(def *tfpb.GraphDef) string {
	find := func(nodes []*tfpb.NodeDef) string {
		for _, n := range nodes {
			if strings.HasPrefix(n.GetOp(), "Collective") {
				return n.GetName()
			}
		}
		return ""
	}
	if name := find(def.GetNode()); name != "" {
		return name
	}
	for _, f := range def.GetLibrary().GetFunction() {
		if name := find(f.GetNodeDef()); name != "" {
			return name
		}
	}
	return ""
}
