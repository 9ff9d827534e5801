//go:build interop

package tensorflow_test

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensorflow/library"
	"github.com/tryst-rdma/tryst/tensorflow/ops"
)

// notProbed are the ops that make a handle or take a name, and that no session can share anything by, or
// that cannot be run alone, with the reason.
var notProbed = map[string]string{
	"BoostedTreesEnsembleResourceHandleOp":       "no kernel",
	"BoostedTreesQuantileStreamResourceHandleOp": "no kernel",
	"_XlaAotOnlyVarHandleOp":                     "no kernel",
	"NcclAllReduce":                              "no kernel",
	"_NcclBroadcastRecv":                         "no kernel",
	"_NcclBroadcastSend":                         "no kernel",
	"_NcclReduceRecv":                            "no kernel",
	"_NcclReduceSend":                            "no kernel",
	"MutableDenseHashTable":                      "its kernel refuses everything",
	"AnonymousRandomSeedGenerator":               "its kernel refuses everything",
	"Batch":                                      batches,
	"Unbatch":                                    batches,
	"UnbatchGrad":                                batches,
	"LMDBReader":                                 "its kernel refuses everything",
	"FixedLengthRecordReader":                    "removed from graphs",
	"IdentityReader":                             "removed from graphs",
	"TFRecordReader":                             "removed from graphs",
	"TextLineReader":                             "removed from graphs",
	"TensorArray":                                "removed from graphs",
	"TensorArrayGrad":                            "takes the handle of a TensorArray, and lives as long",
	"TensorArrayGradV3":                          "takes the handle of a TensorArray, and lives as long",
	"TensorArrayGradWithShape":                   "takes the handle of a TensorArray, and lives as long",
	"IteratorFromStringHandle":                   "takes a handle",
	"IteratorFromStringHandleV2":                 "takes a handle",
	"MultiDeviceIteratorFromStringHandle":        "takes a handle",
	"FakeQueue":                                  "takes a handle; the probe itself",
	"GetSessionHandleV2":                         "a tensor of a session, by a number that is its own",
	"CollectiveInitializeCommunicator":           "the collectives of Tryst, not of the library",
	"RpcClient":                                  "a connection",
	"RpcCall":                                    "a connection",
	"RpcServer":                                  "a listener",
	"TemporaryVariable":                          "its reference is to a value; it lives for a step",
	"_VarHandlesOp":                              "has only names, no op of its own finds more than VarHandleOp",
}

const batches = "a TensorFlow task forms no batch of two steps here, of one session either; its source finds the batch by the node's name"

// byContent are the ops whose sharing shows in what is in their objects (sharing.py), beside its handle or
// since it has none.
var (
	byContent = []string{
		"FIFOQueue", "FIFOQueueV2", "PaddingFIFOQueue", "PaddingFIFOQueueV2", "PriorityQueue", "PriorityQueueV2", "RandomShuffleQueue", "RandomShuffleQueueV2",
		"Barrier", "ConditionalAccumulator", "SparseConditionalAccumulator", "ResourceConditionalAccumulator", "IdentityReaderV2", "IteratorV2",
		"HashTable", "HashTableV2", "MutableHashTable", "MutableHashTableV2", "MutableDenseHashTableV2",
		"Variable", "VariableV2", "VarHandleOp",
	}
	withoutHandle = []string{
		"Stage", "Unstage", "StagePeek", "StageSize", "StageClear",
		"MapStage", "MapPeek", "MapUnstage", "MapUnstageNoKey", "MapSize", "MapIncompleteSize", "MapClear",
		"OrderedMapStage", "OrderedMapPeek", "OrderedMapUnstage", "OrderedMapUnstageNoKey", "OrderedMapSize", "OrderedMapIncompleteSize", "OrderedMapClear",
		"AddSparseToTensorsMap", "AddManySparseToTensorsMap", "TakeManySparseFromTensorsMap", "BatchFunction",
	}
)

// registry returns the definitions of all ops of the library.
func registry(t testing.TB) map[string]*tfpb.OpDef {
	t.Helper()
	k, err := openTensorFlow()
	if err != nil {
		t.Fatal(err)
	}
	set, ok := k.(*library.Set)
	if !ok {
		t.Fatalf("%T is not the set of a library", k)
	}
	ops := map[string]*tfpb.OpDef{}
	for _, name := range set.Ops() {
		ops[name] = set.OpDef(name)
	}
	return ops
}

func has(op *tfpb.OpDef, attr string) bool {
	return slices.ContainsFunc(op.GetAttr(), func(a *tfpb.OpDef_AttrDef) bool { return a.GetName() == attr })
}

// sharingOps returns the ops by which sessions may find each other's objects: those that make a handle, a
// resource or a reference to strings, and those that have only a name.
func sharingOps(t testing.TB) (handles, names []string) {
	for name, op := range registry(t) {
		var handle, takesReference bool
		for _, out := range op.GetOutputArg() {
			handle = handle || out.GetType() == tfpb.DataType_DT_RESOURCE || out.GetIsRef()
		}
		for _, in := range op.GetInputArg() {
			takesReference = takesReference || in.GetIsRef()
		}
		switch {
		case notProbed[name] != "":
		case handle && !takesReference && op.GetIsStateful():
			handles = append(handles, name)
		case has(op, "shared_name") || has(op, "container") || has(op, "containers"):
			names = append(names, name)
		}
	}
	slices.Sort(handles)
	slices.Sort(names)
	return handles, names
}

// TestSessionsFindTheSameObjects: for each op of the library that makes a handle, with and without a name,
// it depends on the same whether two nodes, graphs or sessions find one object: on TensorFlow's task and on
// Tryst's.
func TestSessionsFindTheSameObjects(t *testing.T) {
	c := newCluster(t, map[string]int{"chief": 1, "tf": 1, "tensorflow": 1})
	tf, chief := c.beginTask(t, "tf", 0), c.beginTask(t, "chief", 0)
	c.startTryst(t, serverTask{Job: "tensorflow", Kernels: "all files"}) // readers and writers of files, too
	tf.ready()
	chief.ready()
	handles, _ := sharingOps(t)
	ops := registry(t)
	for _, op := range handles {
		if op == "Variable" || op == "VariableV2" {
			continue // their references are to values: TestSessionsFindTheSameContents has them
		}
		given := map[string]map[string]any{"": {}}
		if has(ops[op], "shared_name") {
			given["named"] = map[string]any{"shared_name": "named_" + op}
			given["in a container"] = map[string]any{"container": "box"}
		}
		if op == "OneShotIterator" {
			delete(given, "named") // refused by its kernel
		}
		if op == "Barrier" {
			delete(given, "named") // ends a TensorFlow server: TestNamedBarrierOutlivesItsSession
		}
		if has(ops[op], "use_node_name_sharing") {
			given["by the node's name"] = map[string]any{"use_node_name_sharing": true}
		}
		for _, how := range slices.Sorted(maps.Keys(given)) {
			t.Run(strings.TrimSpace(op+" "+how), func(t *testing.T) {
				program := args{"op": op, "given": given[how]}
				want := onJob(chief.in(t), "handle_names", "tf", program)
				if want.Code != status.OK {
					t.Fatalf("TensorFlow: %v: %s", want.Code, want.Message)
				}
				got := onJob(chief.in(t), "handle_names", "tensorflow", program)
				if fmt.Sprint(got.Value) != fmt.Sprint(want.Value) {
					t.Errorf("%v (%v %s), want %v", got.Value, got.Code, got.Message, want.Value)
				}
			})
		}
	}
}

// onJob runs a program with a part of it on a job.
func onJob(chief *python, program, job string, a args) result {
	all := args{"on": "/job:" + job + "/task:0/device:CPU:0"}
	maps.Copy(all, a)
	return chief.run(program, all)
}

// TestSharingIsClassified: each op of the library by which sessions may share something is in a test of
// this file, or in notProbed with its reason.
func TestSharingIsClassified(t *testing.T) {
	handles, names := sharingOps(t)
	if len(handles) < 40 {
		t.Errorf("only %d ops make handles: %v", len(handles), handles)
	}
	if !slices.Equal(names, slices.Sorted(slices.Values(withoutHandle))) {
		t.Errorf("ops with a name and without a handle are\n%v, and tested are\n%v", names, slices.Sorted(slices.Values(withoutHandle)))
	}
	for _, op := range slices.Concat(byContent, slices.Collect(maps.Keys(notProbed))) {
		if registry(t)[op] == nil {
			t.Errorf("the library has no op %s", op)
		}
	}
}

// TestSessionsFindTheSameContents: what a session puts into an object is there for the same sessions as on
// a task of TensorFlow.
func TestSessionsFindTheSameContents(t *testing.T) {
	chief := startBoth(t)
	goSet := ops.New()
	compare := func(t *testing.T, program string, a args) {
		want := onJob(chief.in(t), program, "tf", a)
		for _, set := range sets {
			if op, _, _ := strings.Cut(fmt.Sprint(a["case"], a["op"]), ","); set == "go" && program != "handle_in_loop" && goSet.OpDef(strings.TrimSuffix(op, "<nil>")) == nil {
				continue
			}
			got := onJob(chief.in(t), program, set, a)
			if fmt.Sprint(got.Value, got.Code) != fmt.Sprint(want.Value, want.Code) || want.Code != status.OK {
				t.Errorf("%s: %v (%v %s), want %v (%v %s)", set, got.Value, got.Code, got.Message, want.Value, want.Code, want.Message)
			}
		}
	}
	for _, op := range byContent {
		cases := []string{op}
		if strings.Contains(op, "Table") {
			cases = append(cases, op+", use_node_name_sharing")
		}
		for _, c := range cases {
			for _, name := range []string{"", "named"} {
				if op == "Barrier" && name != "" {
					continue // ends a TensorFlow server: TestNamedBarrierOutlivesItsSession
				}
				if name != "" {
					name += "_" + op
				}
				t.Run(strings.TrimSpace(c+" "+name), func(t *testing.T) { compare(t, "contents", args{"case": c, "name": name}) })
			}
		}
	}
	for _, op := range withoutHandle {
		for _, name := range []string{"", "named"} {
			if name != "" {
				name += "_" + op
			}
			t.Run(strings.TrimSpace(op+" "+name), func(t *testing.T) { compare(t, "named", args{"op": op, "name": name}) })
		}
	}
	t.Run("one-shot iterator", func(t *testing.T) { compare(t, "one_shot", args{}) })
	for _, chosen := range []bool{true, false} {
		t.Run(fmt.Sprint("reference in a loop and a branch, ", chosen), func(t *testing.T) { compare(t, "handle_in_loop", args{"chosen": chosen}) })
	}
}

// TestNamedBarrierOutlivesItsSession: a later session finds a Barrier by its name. A task of TensorFlow is
// killed by SIGSEGV there, since the Barrier refers to memory of the session that has made it.
func TestNamedBarrierOutlivesItsSession(t *testing.T) {
	chief := startBoth(t)
	want := fmt.Sprint([]any{0.0, "None", 1.0, 1.0, "None", 2.0, 2.0, 2.0, "None", 3.0})
	if got := onJob(chief.in(t), "contents", "tensorflow", args{"case": "Barrier", "name": "outlives"}); fmt.Sprint(got.Value) != want {
		t.Errorf("%v (%v %s), want %v", got.Value, got.Code, got.Message, want)
	}
}

// residentMiB returns the memory of a process.
func residentMiB(t testing.TB, pid int) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`VmRSS:\s+(\d+) kB`).FindSubmatch(text)
	if m == nil {
		t.Fatalf("no VmRSS in %s", text)
	}
	kb, err := strconv.Atoi(string(m[1]))
	if err != nil {
		t.Fatal(err)
	}
	return kb >> 10
}

// TestMemoryOfEndedSessions: the memory of a server does not grow by what 50 sessions leave in objects
// without a name: 24 MiB each.
func TestMemoryOfEndedSessions(t *testing.T) {
	c := newCluster(t, map[string]int{"chief": 1, "tensorflow": 1})
	server := startCommand(t, "serve", "--task", "/job:tensorflow/task:0", "--cluster", fmt.Sprintf("tensorflow=%s;chief=%s", c["tensorflow"][0], c["chief"][0]))
	chief := c.startTask(t, "chief", 0)
	leave := func(sessions int) int {
		t.Helper()
		if r := onJob(chief, "leave", "tensorflow", args{"sessions": sessions, "mib": 8}); r.Code != status.OK {
			t.Fatalf("%v: %s", r.Code, r.Message)
		}
		return residentMiB(t, server.cmd.Process.Pid)
	}
	before := leave(50) // some allocators of the library take memory for each thread that has not run before
	after := leave(50)
	t.Logf("%d MiB after 50 sessions, %d MiB after 100", before, after)
	if after > before+150 {
		t.Errorf("%d MiB after 50 sessions, %d MiB after 100: they leave %d MiB", before, after, 50*24)
	}
}
