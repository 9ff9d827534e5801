package ops

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

// TestTheGraphsOfATensorFlowMasterHaveKernels makes the kernels of the graphs in tensorflow/graph/testdata. Those
// that save a checkpoint need the kernel set tensorflow, and are refused with the name of the op.
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
			err = makeExecutors(t, def)
			saves := false
			for _, n := range def.Node {
				saves = saves || n.Op == "SaveV2"
			}
			if !saves {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if status.CodeOf(err) != status.Unimplemented || !strings.Contains(err.Error(), "ShardedFilename") &&
				!strings.Contains(err.Error(), "SaveV2") && !strings.Contains(err.Error(), "MergeV2Checkpoints") {
				t.Errorf("got %v", err)
			}
		})
	}
}

func makeExecutors(t *testing.T, def *tfpb.GraphDef) error {
	b := newBench(t)
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
