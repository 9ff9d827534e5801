package library

import (
	"compress/gzip"
	"context"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/tensorflow/ops"
)

// fixtures are the graphs that a TensorFlow master registered (../testdata/README.md), by file.
func fixtures(t testing.TB) map[string]*tfpb.GraphDef {
	t.Helper()
	names, err := filepath.Glob("../graph/testdata/*.pb")
	if err != nil || len(names) == 0 {
		t.Fatal("../graph/testdata has no graphs", err)
	}
	all := make(map[string]*tfpb.GraphDef, len(names))
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		def := new(tfpb.GraphDef)
		if err := proto.Unmarshal(data, def); err != nil {
			t.Fatal(err)
		}
		all[filepath.Base(name)] = def
	}
	return all
}

// moreOps are ops that the fixtures lack and that are cut in a way of their own.
const moreOps = `FIFOQueue FIFOQueueV2 QueueDequeue QueueDequeueV2 QueueEnqueue QueueEnqueueV2 QueueSize QueueSizeV2 QueueClose
	Stage Unstage StagePeek TensorArrayV3 TensorArrayWriteV3 TensorArrayReadV3 TensorArraySizeV3 StackV2 StackPushV2 StackPopV2
	TemporaryVariable DestroyTemporaryVariable Variable IsVariableInitialized CountUpTo MutexV2 MutexLock HashTableV2 LookupTableFindV2
	If StatelessIf While StatelessWhile Case PartitionedCall StatefulPartitionedCall _If _While
	RefSwitch RefMerge RefEnter RefExit RefNextIteration RefIdentity RefSelect _SwitchN ControlTrigger
	_HostSend _HostRecv CollectiveReduceV2 Barrier SaveV2 RestoreV2 ShardedFilename MergeV2Checkpoints`

// fixtureOps returns the names of the ops whose definitions testdata has.
func fixtureOps(t testing.TB) []string {
	names := map[string]bool{}
	for _, name := range append(ops.New().Ops(), strings.Fields(moreOps)...) {
		names[name] = true
	}
	for _, def := range fixtures(t) {
		for _, n := range def.GetNode() {
			names[n.GetOp()] = true
		}
		for _, f := range def.GetLibrary().GetFunction() {
			for _, n := range f.GetNodeDef() {
				names[n.GetOp()] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// recorded is an engine with the definitions and kernels of a TensorFlow that was recorded
// (testdata/README.md). It takes all functions and runs none.
type recorded struct{ kernelList map[string][]byte }

func (*recorded) version() string                        { return "recorded" }
func (*recorded) opList() ([]byte, error)                { return nil, errors.New("not used") }
func (r *recorded) kernels(op string) ([]byte, error)    { return r.kernelList[op], nil }
func (*recorded) newContext() (engineContext, error)     { return recordedContext{}, nil }
func (*recorded) ended() error                           { return nil }
func (*recorded) close()                                 {}
func (recordedContext) addFunction(string, []byte) error { return nil }
func (recordedContext) removeFunction(string) error      { return nil }
func (recordedContext) startStep()                       {}
func (recordedContext) endStep()                         {}
func (recordedContext) run(context.Context, *run) error {
	return errors.New("this engine runs nothing")
}
func (recordedContext) delete() {}

type recordedContext struct{}

// recordedSet returns a Set over the recorded definitions.
func recordedSet(t testing.TB) *Set {
	t.Helper()
	list, err := os.ReadFile("testdata/ops.pb")
	if err != nil {
		t.Fatal(err)
	}
	defs, err := parseOpList(list)
	if err != nil {
		t.Fatal(err)
	}
	r := &recorded{kernelList: map[string][]byte{}}
	// kernels.pb.gz is a KernelList message of all ops: field 1, whose field 1 is the op.
	f, err := os.Open("testdata/kernels.pb.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	if list, err = io.ReadAll(z); err != nil {
		t.Fatal(err)
	}
	if err := eachMessage(list, fieldKernel, func(m []byte) error {
		return eachMessage(m, fieldKernelOp, func(op []byte) error {
			r.kernelList[string(op)] = appendKernel(r.kernelList[string(op)], m)
			return nil
		})
	}); err != nil {
		t.Fatal(err)
	}
	reaches, err := parseReach(opsText)
	if err != nil {
		t.Fatal(err)
	}
	return &Set{engine: r, ops: defs, own: ops.New(), blocking: DefaultBlocking, compute: make(chan struct{}, 1), waiting: make(chan struct{}, maxBlocking), kernels: map[string][]*kernelDef{}, reach: reaches, files: AllFiles}
}

// fieldKernelOp is the field of KernelDef with the name of the op.
const fieldKernelOp = 1

// appendKernel adds a KernelDef message to a KernelList message.
func appendKernel(list, kernel []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(list, fieldKernel, protowire.BytesType), kernel)
}

// as returns v as a T.
func as[T any](t testing.TB, v any) T {
	t.Helper()
	x, ok := v.(T)
	if !ok {
		t.Fatalf("%T is no %T", v, x)
	}
	return x
}
