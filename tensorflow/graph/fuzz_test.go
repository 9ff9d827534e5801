package graph_test

import (
	"context"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
	"github.com/tryst-rdma/tryst/tensorflow/ops"
)

// fixtures are the graphs that a TensorFlow master registered (testdata/README.md), by file.
func fixtures(t testing.TB) map[string][]byte {
	t.Helper()
	names, err := filepath.Glob("testdata/*.pb")
	if err != nil || len(names) == 0 {
		t.Fatal("testdata has no graphs", err)
	}
	all := make(map[string][]byte, len(names))
	for _, name := range names {
		if all[filepath.Base(name)], err = os.ReadFile(name); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// fuzzOptions are small limits, so that a graph which they allow is built and run quickly.
func fuzzOptions(set graph.KernelSet) graph.ImportOptions {
	return graph.ImportOptions{Set: set, MaxNodes: 2000, MaxEdges: 20_000, MaxConstantBytes: 1 << 20}
}

// anyDevice is on this worker.
func anyDevice(string) (uint64, bool) { return 1, true }

// build imports a graph, splits it and makes its kernels. It returns nothing when the graph is refused.
func build(t testing.TB, set graph.KernelSet, state graph.State, def *tfpb.GraphDef) []*graph.Executor {
	t.Helper()
	g, err := graph.Import(def, fuzzOptions(set))
	if err != nil {
		return nil
	}
	parts, err := graph.Split(g, anyDevice)
	if err != nil {
		return nil
	}
	var list []*graph.Executor
	for _, device := range slices.Sorted(maps.Keys(parts)) {
		e, err := graph.NewExecutor(parts[device], state)
		if err != nil {
			return nil
		}
		list = append(list, e)
	}
	return list
}

// runAll runs a step that a receive, a loop or a mistake may keep from ending.
func runAll(t testing.TB, list []*graph.Executor, pool *tensor.Pool) {
	t.Helper()
	r := rendezvous.NewLocal()
	defer r.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	step := &graph.Step{ID: 1, Rendezvous: r, Allocator: pool, Workers: graph.NewWorkers(2)}
	done := make(chan error, len(list))
	for _, e := range list {
		go func() { done <- e.Run(ctx, step) }()
	}
	for range list {
		// The executor makes an error of a panic. Here it fails the test.
		if err := <-done; err != nil && strings.Contains(err.Error(), "panicked, which is a bug") {
			t.Error(err)
		}
	}
}

// change changes a graph as a script says, four bytes a change: what, which node, which input or
// attribute, and a value.
func change(def *tfpb.GraphDef, script []byte) {
	for ; len(script) >= 4 && len(def.GetNode()) > 0; script = script[4:] {
		n := def.Node[int(script[1])%len(def.Node)]
		other := def.Node[int(script[3])%len(def.Node)]
		i := int(script[2])
		switch script[0] % 8 {
		case 0:
			if len(n.GetInput()) > 0 {
				n.Input[i%len(n.Input)] = other.GetName()
			}
		case 1:
			if len(n.GetInput()) > 0 {
				n.Input = slices.Delete(n.Input, i%len(n.Input), i%len(n.Input)+1)
			}
		case 2:
			n.Input = append(n.Input, "^"+other.GetName())
		case 3:
			n.Op = other.GetOp()
		case 4:
			n.Name = other.GetName()
		case 5, 6:
			names := slices.Sorted(maps.Keys(n.GetAttr()))
			if len(names) > 0 {
				n.Attr[names[i%len(names)]] = strange(script[3])
			}
		case 7:
			n.Device = "/job:ps/replica:0/task:0/device:CPU:1"
		}
	}
}

// strange returns one of the values that an attribute rarely has.
func strange(i byte) *tfpb.AttrValue {
	shape := func(dims ...int64) *tfpb.TensorShapeProto {
		s := &tfpb.TensorShapeProto{}
		for _, d := range dims {
			s.Dim = append(s.Dim, &tfpb.TensorShapeProto_Dim{Size: d})
		}
		return s
	}
	values := []*tfpb.AttrValue{
		nil, {}, {Value: &tfpb.AttrValue_I{I: -1}}, {Value: &tfpb.AttrValue_I{I: 1 << 62}}, {Value: &tfpb.AttrValue_S{S: []byte("x")}},
		{Value: &tfpb.AttrValue_Type{Type: tfpb.DataType_DT_STRING}}, {Value: &tfpb.AttrValue_Type{Type: 101}}, {Value: &tfpb.AttrValue_Type{Type: -7}},
		{Value: &tfpb.AttrValue_Shape{Shape: shape(-1, 3)}}, {Value: &tfpb.AttrValue_Shape{Shape: shape(1<<40, 1<<40)}}, {Value: &tfpb.AttrValue_Shape{}},
		{Value: &tfpb.AttrValue_Tensor{Tensor: &tfpb.TensorProto{Dtype: tfpb.DataType_DT_FLOAT, TensorShape: shape(1 << 40)}}},
		{Value: &tfpb.AttrValue_Tensor{Tensor: &tfpb.TensorProto{Dtype: tfpb.DataType_DT_INT32, TensorShape: shape(2, 3)}}},
		{Value: &tfpb.AttrValue_Tensor{Tensor: &tfpb.TensorProto{Dtype: tfpb.DataType_DT_INT32, TensorShape: shape(-2)}}},
		{Value: &tfpb.AttrValue_Tensor{}}, {Value: &tfpb.AttrValue_Func{Func: &tfpb.NameAttrList{Name: "twice"}}}, {Value: &tfpb.AttrValue_List{}},
		{Value: &tfpb.AttrValue_List{List: &tfpb.AttrValue_ListValue{I: []int64{1 << 40, -3}}}}, {Value: &tfpb.AttrValue_B{B: true}}, {Value: &tfpb.AttrValue_Placeholder{Placeholder: "T"}},
	}
	return values[int(i)%len(values)]
}

// FuzzImport imports, splits, builds and runs graphs of a master that were changed: by a script, and by
// more bytes of a GraphDef. Nothing may panic.
func FuzzImport(f *testing.F) {
	graphs := fixtures(f)
	names := slices.Sorted(maps.Keys(graphs))
	for i, name := range names {
		f.Add(byte(i), []byte(nil), []byte(nil))
		f.Add(byte(i), []byte("\x00\x01\x02\x03\x05\x02\x01\x0b\x07\x03\x00\x00"), graphs[name][:min(200, len(graphs[name]))])
	}
	set := ops.New()
	f.Fuzz(func(t *testing.T, file byte, script, more []byte) {
		importChanged(t, set, graphs[names[int(file)%len(names)]], script, more)
	})
}

func importChanged(t testing.TB, set graph.KernelSet, data, script, more []byte) {
	t.Helper()
	var def tfpb.GraphDef
	if len(more) > 1<<12 || len(script) > 64 || proto.Unmarshal(slices.Concat(data, more), &def) != nil {
		return
	}
	change(&def, script)
	state, err := set.NewState()
	if err != nil {
		t.Fatal(err)
	}
	pool := tensor.NewPool(tensor.PoolOptions{Limit: 16 << 20, Keep: -1})
	runAll(t, build(t, set, state, &def), pool)
	state.Close()
	if n := pool.Stats().InUse; n != 0 {
		t.Errorf("%d bytes were not released", n)
	}
}

// TestChangedGraphsDoNoHarm runs FuzzImport with random scripts.
func TestChangedGraphsDoNoHarm(t *testing.T) {
	graphs, set := fixtures(t), ops.New()
	names := slices.Sorted(maps.Keys(graphs))
	r := rand.New(rand.NewPCG(1, 2))
	n := 20_000
	if testing.Short() {
		n = 2000
	}
	for range n {
		script := make([]byte, 4*(1+r.IntN(4)))
		for i := range script {
			script[i] = byte(r.Uint32())
		}
		importChanged(t, set, graphs[names[r.IntN(len(names))]], script, nil)
	}
}

// FuzzAttr puts any value into any attribute of the graphs of a master, and makes the kernels.
func FuzzAttr(f *testing.F) {
	graphs := fixtures(f)
	names := slices.Sorted(maps.Keys(graphs))
	for i := range byte(20) {
		v, err := proto.Marshal(strange(i))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(i, i, i, v)
	}
	set := ops.New()
	f.Fuzz(func(t *testing.T, file, node, attr byte, value []byte) {
		var def tfpb.GraphDef
		var v tfpb.AttrValue
		if err := proto.Unmarshal(graphs[names[int(file)%len(names)]], &def); err != nil {
			t.Fatal(err)
		}
		if proto.Unmarshal(value, &v) != nil {
			return
		}
		n := def.Node[int(node)%len(def.Node)]
		if keys := slices.Sorted(maps.Keys(n.GetAttr())); len(keys) > 0 {
			n.Attr[keys[int(attr)%len(keys)]] = &v
		}
		state, err := set.NewState()
		if err != nil {
			t.Fatal(err)
		}
		defer state.Close()
		build(t, set, state, &def)
	})
}

// TestGraphsOfAMasterAreImported: nothing in these graphs is wrong, so only an op that the kernel
// set lacks may be refused.
func TestGraphsOfAMasterAreImported(t *testing.T) {
	set, imported := ops.New(), 0
	for name, data := range fixtures(t) {
		var def tfpb.GraphDef
		if err := proto.Unmarshal(data, &def); err != nil {
			t.Fatal(err)
		}
		_, err := graph.Import(&def, graph.ImportOptions{Set: set})
		switch {
		case err == nil:
			imported++
		case status.CodeOf(err) != status.Unimplemented || !strings.Contains(err.Error(), "Op type not registered"):
			t.Errorf("%s: %v", name, err)
		}
	}
	if imported < 50 {
		t.Errorf("%d graphs were imported, want 50 or more", imported)
	}
}
