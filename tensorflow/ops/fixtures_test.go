package ops

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

// TestTheGraphsOfATensorFlowMasterHaveKernels makes the kernels of the graphs in tensorflow/graph/testdata. Those that save a
// checkpoint need a directory for files, and are refused without one.
func TestTheGraphsOfATensorFlowMasterHaveKernels(t *testing.T) {
	files, err := filepath.Glob("../graph/testdata/*.pb")
	if err != nil || len(files) < 20 {
		t.Fatalf("%d graphs, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			def := &tfpb.GraphDef{}
			if err := proto.Unmarshal(b, def); err != nil {
				t.Fatal(err)
			}
			if err := makeExecutors(newFileBench(t, t.TempDir()), def); err != nil {
				t.Error(err)
			}
			saves := slices.ContainsFunc(def.Node, func(n *tfpb.NodeDef) bool { return n.Op == "SaveV2" })
			if err := makeExecutors(newBench(t), def); saves && status.CodeOf(err) != status.PermissionDenied {
				t.Errorf("without a directory: %v", err)
			}
		})
	}
}

// TestCheckpointsInFunctionsNeedADirectory: a function that a graph calls is checked when the graph is registered.
func TestCheckpointsInFunctionsNeedADirectory(t *testing.T) {
	text := func(name string) *tfpb.OpDef_ArgDef {
		return &tfpb.OpDef_ArgDef{Name: name, Type: tfpb.DataType_DT_STRING}
	}
	def := &tfpb.GraphDef{
		Library: &tfpb.FunctionDefLibrary{Function: []*tfpb.FunctionDef{{
			Signature: &tfpb.OpDef{Name: "f", InputArg: []*tfpb.OpDef_ArgDef{text("a")}},
			NodeDef:   []*tfpb.NodeDef{{Name: "merge", Op: "MergeV2Checkpoints", Input: []string{"a", "a"}}},
		}}},
		Node: []*tfpb.NodeDef{
			{Name: "name", Op: "Const", Device: "/job:a/replica:0/task:0/device:CPU:0", Attr: map[string]*tfpb.AttrValue{
				"dtype": typeValue(tensor.String), "value": {Value: &tfpb.AttrValue_Tensor{Tensor: &tfpb.TensorProto{Dtype: tfpb.DataType_DT_STRING, StringVal: [][]byte{[]byte("x")}, TensorShape: &tfpb.TensorShapeProto{}}}},
			}},
			{Name: "call", Op: "f", Device: "/job:a/replica:0/task:0/device:CPU:0", Input: []string{"name"}},
		},
	}
	if err := makeExecutors(newFileBench(t, t.TempDir()), def); err != nil {
		t.Errorf("with a directory: %v", err)
	}
	if err := makeExecutors(newBench(t), def); status.CodeOf(err) != status.PermissionDenied || !strings.Contains(err.Error(), "op MergeV2Checkpoints reads or writes files") {
		t.Errorf("without a directory: %v", err)
	}
}

func makeExecutors(b *bench, def *tfpb.GraphDef) error {
	g, err := graph.Import(def, graph.ImportOptions{Set: b.set})
	if err != nil {
		return err
	}
	parts, err := graph.Split(g, func(string) (uint64, bool) { return 1, true })
	if err != nil {
		return err
	}
	for _, part := range parts {
		e, err := graph.NewExecutor(part, b.state)
		if err != nil {
			return err
		}
		if err := e.Close(); err != nil {
			return err
		}
	}
	return nil
}
