package library

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

// anyDevice is on this worker.
func anyDevice(string) (uint64, bool) { return 1, true }

// TestGraphsOfAMasterAreCut: nothing in the graphs that a master registered is wrong or missing, so each
// is rewritten, and its executors get their kernels.
func TestGraphsOfAMasterAreCut(t *testing.T) {
	s := recordedSet(t)
	st, err := s.NewState()
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	for name, def := range fixtures(t) {
		g, err := graph.Import(def, graph.ImportOptions{Set: s})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		parts, err := graph.Split(g, anyDevice)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for device, part := range parts {
			wrong, err := cutAndCheck(s, part)
			if err != nil {
				t.Errorf("%s on %s: %v", name, device, err)
			}
			for _, w := range wrong {
				t.Errorf("%s on %s: %s", name, device, w)
			}
			rewritten, err := st.Rewrite(part)
			if err != nil {
				t.Errorf("%s on %s: %v", name, device, err)
				continue
			}
			e, err := graph.NewExecutor(rewritten, st)
			if err != nil {
				t.Errorf("%s on %s: %v", name, device, err)
				continue
			}
			if err := e.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// change changes a graph as a script says, four bytes a change: what, which node, which input or
// attribute, and a value.
func change(def *tfpb.GraphDef, names []string, script []byte) {
	for ; len(script) >= 4 && len(def.GetNode()) > 0; script = script[4:] {
		n := def.Node[int(script[1])%len(def.Node)]
		other := def.Node[(int(script[3])|int(script[2])<<8)%len(def.Node)]
		i := int(script[2])
		switch script[0] % 10 {
		case 0: // another input
			if len(n.GetInput()) > 0 {
				n.Input[i%len(n.Input)] = other.GetName()
			}
		case 1, 2: // a control edge more
			n.Input = append(n.Input, "^"+other.GetName())
		case 3:
			n.Op = names[(int(script[3])|i<<8)%len(names)]
		case 4: // a node with the inputs and attributes of another
			n.Op, n.Input, n.Attr = other.GetOp(), slices.Clone(other.GetInput()), maps.Clone(other.GetAttr())
		case 5: // a value goes through another op of one input
			identity(def, n, i, []string{"Identity", "RefIdentity", "RefExit", "RefNextIteration", "LoopCond", "Abs"}[int(script[3])%6])
		case 6: // a branch
			branch(def, n, i)
		case 7: // a receive that a node waits for
			n.Input = append(n.Input, "^"+receive(def))
		case 8: // a variable that waits
			if v := slices.IndexFunc(def.Node, func(n *tfpb.NodeDef) bool { return strings.HasPrefix(n.GetOp(), "Variable") }); v >= 0 {
				def.Node[v].Input = append(def.Node[v].Input, "^"+other.GetName())
			}
		case 9:
			n.Device = "/job:ps/replica:0/task:0/device:CPU:1"
		}
	}
}

func fresh(def *tfpb.GraphDef, n *tfpb.NodeDef) string {
	n.Name = "added_" + n.GetOp() + "_" + string(rune('a'+len(def.Node)%26)) + strings.Repeat("x", len(def.Node)/26%40)
	n.Device = def.Node[0].GetDevice()
	def.Node = append(def.Node, n)
	return n.GetName()
}

// typeOf guesses the type of a node's values.
func typeOf(n *tfpb.NodeDef) *tfpb.AttrValue {
	for _, a := range []string{"T", "dtype", "tensor_type", "SrcT"} {
		if v := n.GetAttr()[a]; v != nil {
			return v
		}
	}
	return &tfpb.AttrValue{Value: &tfpb.AttrValue_Type{Type: tfpb.DataType_DT_FLOAT}}
}

// identity puts a node between n and one of its inputs.
func identity(def *tfpb.GraphDef, n *tfpb.NodeDef, i int, op string) {
	if len(n.GetInput()) == 0 || strings.HasPrefix(n.Input[i%len(n.Input)], "^") {
		return
	}
	i %= len(n.Input)
	n.Input[i] = fresh(def, &tfpb.NodeDef{Op: op, Input: []string{n.Input[i]}, Attr: map[string]*tfpb.AttrValue{"T": typeOf(n)}})
}

// branch leads the first input of n through a Switch and a Merge over references or values.
func branch(def *tfpb.GraphDef, n *tfpb.NodeDef, i int) {
	if len(n.GetInput()) == 0 || strings.HasPrefix(n.Input[0], "^") {
		return
	}
	prefix := ""
	if i%2 == 1 {
		prefix = "Ref"
	}
	attr := map[string]*tfpb.AttrValue{"T": typeOf(n)}
	pred := &tfpb.NodeDef{Op: "_Recv", Attr: receiving(tfpb.DataType_DT_BOOL)}
	s := fresh(def, &tfpb.NodeDef{Op: prefix + "Switch", Input: []string{n.Input[0], fresh(def, pred)}, Attr: attr})
	if i%4 < 2 {
		n.Input[0] = s + ":1"
		return
	}
	no := fresh(def, &tfpb.NodeDef{Op: prefix + "Identity", Input: []string{s}, Attr: maps.Clone(attr)})
	merge := maps.Clone(attr)
	merge["N"] = &tfpb.AttrValue{Value: &tfpb.AttrValue_I{I: 2}}
	n.Input[0] = fresh(def, &tfpb.NodeDef{Op: prefix + "Merge", Input: []string{no, s + ":1"}, Attr: merge})
}

// hereDevice is both ends of the edges that tests add.
const hereDevice = "/job:w/replica:0/task:0/device:CPU:0"

func receiving(t tfpb.DataType) map[string]*tfpb.AttrValue {
	return map[string]*tfpb.AttrValue{"tensor_type": {Value: &tfpb.AttrValue_Type{Type: t}}, "tensor_name": text("x"), "send_device": text(hereDevice),
		"recv_device": text(hereDevice), "send_device_incarnation": {Value: &tfpb.AttrValue_I{I: 1}}}
}

func receive(def *tfpb.GraphDef) string {
	return fresh(def, &tfpb.NodeDef{Op: "_Recv", Attr: receiving(tfpb.DataType_DT_FLOAT)})
}

// FuzzCut cuts graphs of a master that were changed: by a script, and by more bytes of a GraphDef. Nothing
// may panic, and what is not refused keeps the rules of cutAndCheck.
func FuzzCut(f *testing.F) {
	graphs := fixtures(f)
	names := slices.Sorted(maps.Keys(graphs))
	for i := range names {
		f.Add(byte(i), []byte(nil), []byte(nil))
		f.Add(byte(i), []byte("\x06\x01\x03\x03\x07\x02\x01\x0b\x05\x03\x00\x01"), []byte(nil))
	}
	c := newChanger(f)
	f.Fuzz(func(t *testing.T, file byte, script, more []byte) {
		c.run(t, graphs[names[int(file)%len(names)]], script, more)
	})
}

// changer cuts changed graphs.
type changer struct {
	set *Set
	ops []string
	cut int // graphs that were not refused
}

func newChanger(t testing.TB) *changer {
	s := recordedSet(t)
	return &changer{set: s, ops: s.Ops()}
}

func (c *changer) run(t testing.TB, from *tfpb.GraphDef, script, more []byte) {
	t.Helper()
	def := proto.CloneOf(from)
	if len(more) > 1<<12 || len(script) > 64 || (proto.UnmarshalOptions{Merge: true}).Unmarshal(more, def) != nil {
		return
	}
	change(def, c.ops, script)
	g, err := graph.Import(def, graph.ImportOptions{Set: c.set, MaxNodes: 2000, MaxEdges: 20_000, MaxConstantBytes: 1 << 20})
	if err != nil {
		return
	}
	parts, err := graph.Split(g, anyDevice)
	if err != nil {
		return
	}
	for _, device := range slices.Sorted(maps.Keys(parts)) {
		wrong, err := cutAndCheck(c.set, parts[device])
		if code := status.CodeOf(err); err != nil && code != status.InvalidArgument && code != status.Unimplemented && code != status.ResourceExhausted {
			t.Errorf("%s: refused with %v", device, err)
		}
		if err == nil {
			c.cut++
		}
		for _, w := range wrong {
			t.Errorf("%s: %s", device, w)
		}
	}
}

// TestChangedGraphsAreCutOrRefused runs FuzzCut with random scripts.
func TestChangedGraphsAreCutOrRefused(t *testing.T) {
	graphs, c := fixtures(t), newChanger(t)
	names := slices.Sorted(maps.Keys(graphs))
	r := rand.New(rand.NewPCG(1, 2))
	n := 20_000
	if testing.Short() {
		n = 1000
	}
	for range n {
		script := make([]byte, 4*(1+r.IntN(4)))
		for i := range script {
			script[i] = byte(r.Uint32())
		}
		name := names[r.IntN(len(names))]
		c.run(t, graphs[name], script, nil)
		if t.Failed() {
			t.Fatalf("%s after the script %q", name, script)
		}
	}
	if c.cut < n/10 {
		t.Errorf("%d of %d graphs were cut, want a tenth or more", c.cut, n)
	}
}
