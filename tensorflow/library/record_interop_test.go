//go:build interop

package library

import (
	"bytes"
	"compress/gzip"
	"errors"
	"flag"
	"os"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
	"github.com/tryst-rdma/tryst/tensorflow/ops"
)

var update = flag.Bool("update", false, "write the definitions and kernels of TensorFlow into testdata")

// TestRecordedDefinitions: TensorFlow has the ops whose definitions are in testdata. With -update it writes
// them.
func TestRecordedDefinitions(t *testing.T) {
	s := tensorFlow(t)
	names := fixtureOps(t)
	var defs, kernels []byte
	found := 0
	for _, op := range names {
		def := proto.CloneOf(s.ops[op])
		if def == nil {
			t.Logf("this TensorFlow has no op %s", op)
			continue
		}
		found++
		def.Summary, def.Description = "", ""
		b, err := proto.MarshalOptions{Deterministic: true}.Marshal(def)
		if err != nil {
			t.Fatal(err)
		}
		defs = protowire.AppendBytes(protowire.AppendTag(defs, 1, protowire.BytesType), b)
		list, err := s.engine.kernels(op)
		if err != nil {
			t.Fatal(err)
		}
		if err := eachMessage(list, fieldKernel, func(m []byte) error {
			return eachMessage(m, fieldDevice, func(device []byte) error {
				if d := string(device); d == "CPU" || d == "DEFAULT" {
					kernels = appendKernel(kernels, m)
				}
				return nil
			})
		}); err != nil {
			t.Fatal(err)
		}
	}
	if found < len(names)*9/10 {
		t.Errorf("TensorFlow has %d of %d ops", found, len(names))
	}
	if !*update {
		return
	}
	var compressed bytes.Buffer
	z, err := gzip.NewWriterLevel(&compressed, gzip.BestCompression)
	if err != nil {
		t.Fatal(err)
	}
	_, err = z.Write(kernels)
	if err = errors.Join(err, z.Close()); err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string][]byte{"testdata/ops.pb": defs, "testdata/kernels.pb.gz": compressed.Bytes()} {
		if err := os.WriteFile(name, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// build rewrites the parts of a graph and makes their kernels, which adds the functions to TensorFlow.
func build(t *testing.T, name string, s *Set, st graph.State, def *tfpb.GraphDef) {
	t.Helper()
	g, err := graph.Import(def, graph.ImportOptions{Set: s})
	if err != nil {
		if strings.Contains(err.Error(), "Op type not registered") { // by an older TensorFlow
			return
		}
		t.Errorf("%s: %v", name, err)
		return
	}
	parts, err := graph.Split(g, anyDevice)
	if err != nil {
		t.Errorf("%s: %v", name, err)
	}
	for _, part := range parts {
		if part, err = st.Rewrite(part); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		e, err := graph.NewExecutor(part, st)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if err := e.Close(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// openWithGo returns a state of TensorFlow with the kernels in Go that servers have.
func openWithGo(t *testing.T) (*Set, graph.State) {
	t.Helper()
	s, err := Open(Options{Go: ops.New(), Files: AllFiles})
	if err != nil {
		t.Fatal(err)
	}
	st, err := s.NewState()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(st.Close)
	return s, st
}

// TestTensorFlowTakesTheSubgraphs: TensorFlow accepts the functions of all graphs that a master registered, and of
// those below, which have edges that no master makes in them.
func TestTensorFlowTakesTheSubgraphs(t *testing.T) {
	s, st := openWithGo(t)
	for name, def := range fixtures(t) {
		build(t, name, s, st, def)
	}
	devices := &tfpb.GraphDef{Node: nodes("x = _Recv()\nneg = Neg(x)\nabs = Abs(x ^neg)\nout = _Send(abs)")}
	for _, n := range devices.GetNode()[2:] {
		n.Device = strings.Replace(n.GetDevice(), "CPU:0", "CPU:1", 1)
	}
	build(t, "a control edge between devices", s, st, devices)
	build(t, "a variable that waits", s, st, &tfpb.GraphDef{Node: nodes(waitingVariable)})
	build(t, "a loop over a reference", s, st, &tfpb.GraphDef{Node: nodes(referenceLoop)})
}

// TestControlEdgeBetweenDevices: the function of a subgraph gives the empty value that stands for the end of a node
// on another device of the task.
func TestControlEdgeBetweenDevices(t *testing.T) {
	s, st := openWithGo(t)
	def := &tfpb.GraphDef{Node: nodes("x = _Recv()\nneg = Neg(x)\nabs = Abs(x ^neg)\nout = _Send(abs)")}
	for _, n := range def.GetNode()[2:] {
		n.Device = strings.Replace(n.GetDevice(), "CPU:0", "CPU:1", 1)
	}
	g, err := graph.Import(def, graph.ImportOptions{Set: s})
	if err != nil {
		t.Fatal(err)
	}
	parts, err := graph.Split(g, anyDevice)
	if err != nil {
		t.Fatal(err)
	}
	part, err := st.Rewrite(parts[hereDevice])
	if err != nil {
		t.Fatal(err)
	}
	e, err := graph.NewExecutor(part, st)
	if err != nil {
		t.Fatal(err)
	}
	r := rendezvous.NewLocal()
	defer r.Close()
	key, err := rendezvous.ParseKey(rendezvous.CreateKey(hereDevice, 1, hereDevice, "x", rendezvous.FrameIter{}))
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Send(key, rendezvous.Args{}, vector(t, 1), false); err != nil {
		t.Fatal(err)
	}
	if err := e.Run(t.Context(), &graph.Step{ID: 1, Rendezvous: r, Allocator: tensor.Heap{}}); err != nil {
		t.Error(err)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}
