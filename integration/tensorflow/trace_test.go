//go:build interop

package tensorflow_test

import (
	"maps"
	"regexp"
	"strings"
	"testing"
)

// edgeNumber is the number of an edge in its name. TensorFlow 2.13 numbers the edges of equal graphs
// differently.
var edgeNumber = regexp.MustCompile(`^edge_\d+_`)

// TestFullTrace: RunOptions.FULL_TRACE has the kernels and the transfers of a Tryst task, by the
// names that they have on a TensorFlow task. Those that send and receive are kernels, too.
func TestFullTrace(t *testing.T) {
	chief := startBoth(t)
	trace := func(job string) (nodes, transfers map[string]bool) {
		// TensorFlow's master may ask a worker of TensorFlow before all transfers of a step are logged there.
		v, _ := chief.value("trace", args{"ps": "/job:" + job, "several": job == "tf"}).(map[string]any)
		if v["timed"] != true || v["chrome"] != true {
			t.Errorf("%s: the trace has no times, or TensorFlow makes no Chrome trace of it: %v", job, v)
		}
		set := func(key string) map[string]bool {
			names := map[string]bool{}
			list, _ := v[key].([]any)
			for _, n := range list {
				text, _ := n.(string)
				name := strings.ReplaceAll(text, "/job:"+job+"/", "/job:ps/")
				names[edgeNumber.ReplaceAllString(name, "edge ")] = true
			}
			return names
		}
		return set("nodes"), set("transfers")
	}
	nodes, transfers := trace("tf")
	delete(nodes, "_SOURCE") // of TensorFlow's executor
	for _, set := range sets {
		t.Run(set, func(t *testing.T) {
			gotNodes, gotTransfers := trace(set)
			if !maps.Equal(gotTransfers, transfers) {
				t.Errorf("the transfers are %v, want %v", gotTransfers, transfers)
			}
			for n := range nodes {
				// A subgraph of the set tensorflow runs as one function, under the name of one of its nodes.
				inSubgraph := set == "tensorflow" && !strings.HasSuffix(n, "/ApplyAdam")
				if !gotNodes[n] && !inSubgraph {
					t.Errorf("the trace lacks the kernel %s; it has %v", n, gotNodes)
				}
			}
		})
	}
}
