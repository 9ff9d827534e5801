package worker

import (
	"testing"

	"github.com/tryst-rdma/tryst/internal/collective"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/status"
)

func leading(task string) *tfpb.ConfigProto {
	return &tfpb.ConfigProto{Experimental: &tfpb.ConfigProto_Experimental{CollectiveGroupLeader: task}}
}

// TestLeaderOfASession: a graph with collective operations is refused when the config of its session, at the
// session or at the graph, names another leader than that of the process: its groups would never be complete.
func TestLeaderOfASession(t *testing.T) {
	g := newGraphs(t, Options{})
	g.opts.Collectives = collective.New(collective.Options{Task: here})
	defer g.opts.Collectives.Close()
	const (
		ours  = "/job:ps/replica:0/task:0"
		other = "/job:chief/replica:0/task:0"
	)
	g.programs["program"] = nil
	for _, c := range []struct {
		name           string
		session, graph string // the leaders in the two configs
		op             string
		inFunction     bool
		code           status.Code
		text           string
	}{
		{"no leader", "", "", "CollectiveReduceV2", false, status.OK, ""},
		{"the same", ours, ours, "CollectiveReduceV2", false, status.OK, ""},
		{"another for the session", other, "", "CollectiveReduceV2", false, status.FailedPrecondition, "leader is " + other + " by"},
		{"another for the graph", "", other, "CollectiveGather", false, status.FailedPrecondition, `node "program"`},
		{"that of the graph counts", other, ours, "CollectiveReduceV2", false, status.OK, ""},
		{"in a function", other, "", "CollectiveBcastSendV2", true, status.FailedPrecondition, `node "inner"`},
		{"no collective operation", other, other, "NoOp", false, status.OK, ""},
		{"no task", "", "chief", "NoOp", false, status.InvalidArgument, "config_proto: experimental.collective_group_leader"},
	} {
		s := g.open(&tfpb.CreateWorkerSessionRequest{ServerDef: &tfpb.ServerDef{DefaultSessionConfig: leading(c.session)}})
		req := registration(s, "program")
		req.ConfigProto = leading(c.graph)
		if c.inFunction {
			req.GraphDef.Library = &tfpb.FunctionDefLibrary{Function: []*tfpb.FunctionDef{{NodeDef: []*tfpb.NodeDef{{Name: "inner", Op: c.op}}}}}
		} else {
			req.GraphDef.Node[0].Op = c.op
		}
		_, err := g.RegisterGraph(t.Context(), req)
		if status.CodeOf(err) != c.code {
			t.Errorf("%s: %v, want %v", c.name, err, c.code)
		} else if err != nil {
			wantCode(t, err, c.code, c.text)
		}
		g.delete(s)
	}
	_, err := g.CreateWorkerSession(t.Context(), &tfpb.CreateWorkerSessionRequest{SessionHandle: "a", ServerDef: &tfpb.ServerDef{DefaultSessionConfig: leading("chief")}})
	wantCode(t, err, status.InvalidArgument, "CreateWorkerSession a: server_def.default_session_config: experimental.collective_group_leader")
}

// TestDeviceCountHasNoEffect: as in TensorFlow, the devices of a task are those of its process, whatever
// device_count a session has.
func TestDeviceCountHasNoEffect(t *testing.T) {
	g := newGraphs(t, Options{})
	s := g.open(&tfpb.CreateWorkerSessionRequest{ServerDef: &tfpb.ServerDef{DefaultSessionConfig: &tfpb.ConfigProto{DeviceCount: map[string]int32{"CPU": 4, "GPU": 1}}}})
	r, err := g.GetStatus(t.Context(), &tfpb.GetStatusRequest{})
	if err != nil || len(r.GetDeviceAttributes()) != 1 {
		t.Errorf("%v, %v", r, err)
	}
	if n := len(g.sessions.byHandle[s].place.Devices); n != 1 {
		t.Errorf("the session has %d devices", n)
	}
}
