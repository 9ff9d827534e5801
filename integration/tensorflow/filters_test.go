//go:build interop

package tensorflow_test

import (
	"context"
	"encoding/hex"
	"fmt"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/tensorflow/master"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/tensortest"
	grpctransport "github.com/tryst-rdma/tryst/transport/grpc"
)

// TestClusterDeviceFilters: a master propagates a cluster with device filters, as TensorFlow writes
// them. A Tryst task receives from the tasks that its filters name, one of TensorFlow among them, and
// from no other. The master is in Go: TensorFlow's sends none, since ConfigProto has no field for them.
func TestClusterDeviceFilters(t *testing.T) {
	c := newCluster(t, map[string]int{"chief": 1, "ps": 2})
	chief := c.beginTask(t, "chief", 0)
	for i := range c["ps"] {
		c.startTryst(t, serverTask{Job: "ps", Task: i, Kernels: "go"})
	}
	chief.ready()
	spec, err := cluster.SpecFromLists(c)
	if err != nil {
		t.Fatal(err)
	}
	conns := grpctransport.NewConns(grpctransport.ConnsOptions{Self: cluster.ClientTask(), Spec: spec})
	defer conns.Close()
	boss, helper, other := cluster.Task{Job: "boss"}, cluster.Task{Job: "helper", Index: 3}, cluster.Task{Job: "other"}
	// Jobs with several names are the same processes under the names of the session.
	addresses := map[string]any{"boss": map[string]string{"0": c["chief"][0]}, "helper": map[string]string{"3": c["ps"][0]}, "other": map[string]string{"0": c["ps"][1]}}
	is := map[cluster.Task]cluster.Task{boss: {Job: "chief"}, helper: {Job: "ps"}, other: {Job: "ps", Index: 1}}

	open := func(t *testing.T, task cluster.Task, filters []string) *master.Session {
		t.Helper()
		text, _ := chief.in(t).value("server_def", args{"cluster": addresses, "job": task.Job, "task": task.Index, "filters": filters}).(string)
		b, err := hex.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		def := new(tfpb.ServerDef)
		if err := proto.Unmarshal(b, def); err != nil {
			t.Fatal(err)
		}
		w, err := conns.Worker(is[task])
		if err != nil {
			t.Fatal(err)
		}
		s, err := master.Open(t.Context(), w, master.Options{ServerDef: def, Isolate: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.Close(context.WithoutCancel(t.Context())); err != nil {
				t.Error(err)
			}
		})
		return s
	}
	register := func(t *testing.T, s *master.Session, g *master.Graph) *master.Program {
		t.Helper()
		p, err := s.Register(t.Context(), g)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	for _, test := range []struct {
		from    cluster.Task
		filters []string
		visible bool
	}{
		{boss, nil, true}, {other, nil, true},
		{boss, []string{"/job:boss"}, true}, {other, []string{"/job:boss"}, false},
		{boss, []string{"/job:other/task:0", "/job:nobody"}, false}, {other, []string{"/job:other/task:0", "/job:nobody"}, true},
	} {
		t.Run(fmt.Sprintf("%v from %s", test.filters, test.from.Job), func(t *testing.T) {
			sender, receiver := open(t, test.from, []string{}), open(t, helper, append([]string{}, test.filters...))
			at := func(s *master.Session, task cluster.Task) master.Peer {
				p := s.Devices()[0]
				p.Device.Task = task
				return p
			}
			out, in := sender.NewGraphOn(at(sender, test.from)), receiver.NewGraphOn(at(receiver, helper))
			out.Send("x", out.Feed("x", tensor.Float32), tensor.Float32, at(receiver, helper).Device)
			in.Fetch("x", in.Recv("x", tensor.Float32, at(sender, test.from)), tensor.Float32)
			send, receive := register(t, sender, out), register(t, receiver, in)
			step := master.NewStep()
			if _, err := send.Run(t.Context(), step, map[string]*tensor.Tensor{"x": slice[float32](t, 7)}); err != nil {
				t.Fatal(err)
			}
			got, err := receive.Run(t.Context(), step, nil)
			if test.visible {
				if err != nil {
					t.Fatal(err)
				}
				defer got["x"].Release()
				tensortest.RequireEqual(t, slice[float32](t, 7), got["x"])
			} else {
				wantError(t, err, status.NotFound, "the cluster has no task "+test.from.String())
			}
			for _, s := range []*master.Session{sender, receiver} {
				if err := s.CleanUp(t.Context(), step); err != nil {
					t.Error(err)
				}
			}
		})
	}
}
