//go:build interop

package tensorflow_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/tryst-rdma/tryst/internal/proto/tensorflowgrpc"
	"github.com/tryst-rdma/tryst/internal/transporttest"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
)

// fixtures is the directory of the graphs with which the tests and fuzz targets of package graph
// begin.
const fixtures = "../../tensorflow/graph/testdata"

// TestCapture: each program runs on a TensorFlow task behind a recorder, which sees the graphs that
// the master registers. With -update they are written to the fixtures.
func TestCapture(t *testing.T) {
	c := newCluster(t, map[string]int{"chief": 1, "ps": 1})
	behind := tasks{"chief": c["chief"], "ps": {transporttest.FreeAddresses(t, 1)[0]}}
	r := startRecorder(t, c["ps"][0], behind["ps"][0])
	behind.startTask(t, "ps", 0)
	chief := c.startTask(t, "chief", 0)
	for _, test := range []struct {
		name, program string
		args          args
	}{
		{"train-adam-ref", "train", args{"ps": "/job:ps", "optimizer": "adam", "variables": "ref", "steps": 2}},
		{"train-adam-resource", "train", args{"ps": "/job:ps", "optimizer": "adam", "variables": "resource", "steps": 2}},
		{"train-sgd-ref", "train", args{"ps": "/job:ps", "optimizer": "sgd", "variables": "ref", "steps": 2}},
		{"train-momentum-resource", "train", args{"ps": "/job:ps", "optimizer": "momentum", "variables": "resource", "steps": 2}},
		{"train-adagrad-ref", "train", args{"ps": "/job:ps", "optimizer": "adagrad", "variables": "ref", "steps": 2}},
		{"model-there", "model_there", args{"on": "/job:ps/task:0", "steps": 2}},
		{"model-there-resource", "model_there", args{"on": "/job:ps/task:0", "steps": 2, "variables": "resource"}},
		{"control", "control", args{"on": "/job:ps/task:0"}},
		{"echo-string", "echo", args{"on": "/job:ps/task:0", "dtype": "string", "shape": []int{2, 3}}},
		{"loop", "loop", args{"on": "/job:ps/task:0"}},
		{"loop-v2", "loop", args{"on": "/job:ps/task:0", "v2": true}},
		{"loop-there", "loop_there", args{"on": "/job:ps/task:0"}},
		{"loop-accumulates", "loop_accumulates", args{"on": "/job:ps/task:0"}},
		{"condition", "condition", args{"on": "/job:ps/task:0", "taken": true}},
		{"condition-v2", "condition", args{"on": "/job:ps/task:0", "taken": false, "v2": true}},
		{"dead", "dead", args{"on": "/job:ps/task:0", "taken": false}},
		{"function", "function", args{"on": "/job:ps/task:0"}},
		{"embedding-sgd-ref", "embedding", args{"ps": "/job:ps", "optimizer": "sgd", "variables": "ref", "steps": 2}},
		{"embedding-adam-ref", "embedding", args{"ps": "/job:ps", "optimizer": "adam", "variables": "ref", "steps": 2}},
		{"embedding-adam-resource", "embedding", args{"ps": "/job:ps", "optimizer": "adam", "variables": "resource", "steps": 2}},
		{"embedding-momentum-ref", "embedding", args{"ps": "/job:ps", "optimizer": "momentum", "variables": "ref", "steps": 2}},
		{"embedding-adagrad-resource", "embedding", args{"ps": "/job:ps", "optimizer": "adagrad", "variables": "resource", "steps": 2}},
		{"embedding-parts", "partitioned_embedding", args{"ps": "/job:ps"}},
		{"partial", "partial", args{"on": "/job:ps/task:0"}},
		{"monitored-ref", "monitored", args{"ps": "/job:ps", "directory": t.TempDir(), "steps": 3}},
		{"monitored-resource", "monitored", args{"ps": "/job:ps", "directory": t.TempDir(), "steps": 3, "variables": "resource"}},
		{"initialisers", "initialisers", args{"on": "/job:ps/task:0"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			chief.in(t).value(test.program, test.args)
			calls := r.take(tensorflowgrpc.WorkerService_RegisterGraph_FullMethodName)
			if len(calls) == 0 {
				t.Fatal("the master registered no graph")
			}
			for i, call := range calls {
				var request tfpb.RegisterGraphRequest
				if err := proto.Unmarshal(call.request, &request); err != nil {
					t.Fatal(err)
				}
				if *update {
					capture(t, fmt.Sprintf("%s-%d.pb", test.name, i), request.GetGraphDef())
				}
			}
		})
	}
}

// capture writes a graph to the fixtures.
func capture(t *testing.T, name string, g *tfpb.GraphDef) {
	t.Helper()
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(g)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(fixtures, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(fixtures, name), b, 0o644); err != nil {
		t.Fatal(err)
	}
}
