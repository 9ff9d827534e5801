package server

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tryst-rdma/tryst/internal/logtest"
	"github.com/tryst-rdma/tryst/internal/tensorflow/master"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
	"github.com/tryst-rdma/tryst/tensorflow/ops"
)

// deniedKernels is a KernelSet that refuses Neg when it is registered, and whose Abs fails when it runs: as
// the kernels of TensorFlow's library for an op that reads files, and for a file that it may not open.
type deniedKernels struct{ graph.KernelSet }

func (k deniedKernels) NewState() (graph.State, error) {
	s, err := k.KernelSet.NewState()
	return deniedState{s}, err
}

type deniedState struct{ graph.State }

func (s deniedState) NewSession() graph.State { return deniedState{s.State.NewSession()} }

func (s deniedState) NewKernel(n *graph.Node) (graph.Kernel, error) {
	switch n.Op {
	case "Neg":
		return nil, status.New(status.PermissionDenied, "the op reads files")
	case "Abs":
		return graph.KernelFunc(func(*graph.Context) error {
			return status.New(status.PermissionDenied, "the file is of another user")
		}), nil
	}
	return s.State.NewKernel(n)
}

// TestRefusedGraphsAreNoRefusedNames: PermissionDenied is the code of both. A graph that is refused has its own
// line and count, and the error of a kernel is nothing that the server refuses.
func TestRefusedGraphsAreNoRefusedNames(t *testing.T) {
	log, registry := new(logtest.Log), prometheus.NewRegistry()
	s := start(t, settings(), Options{Kernels: deniedKernels{ops.New()}, Registerer: registry, Logger: log.Logger()})
	session := openSession(t, s, master.Options{})
	with := func(op string) *master.Graph {
		g := session.NewGraph()
		g.Fetch("y", g.Add("op", op, ofFloat, g.Feed("x", tensor.Float32)), tensor.Float32)
		return g
	}
	for range 2 {
		_, err := session.Register(t.Context(), with("Neg"))
		wantStatus(t, err, status.PermissionDenied, "reads files")
	}
	x := float(t, 5)
	defer x.Release()
	_, err := registerGraph(t, session, with("Abs")).Step(t.Context(), map[string]*tensor.Tensor{"x": x})
	wantStatus(t, err, status.PermissionDenied, "another user")
	if n := gathered(t, registry, "tryst_refused_graphs_total"); n != 2 {
		t.Errorf("%v refused graphs", n)
	}
	if log.Count("refusing a graph") != 1 || log.Count("the op reads files") != 1 {
		t.Error("a refused graph has no line, or several")
	}
	if log.Count("refusing a name") != 0 {
		t.Error("a refused graph, or an error of a kernel, is taken for a refused name")
	}
}
