package graph

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/tryst-rdma/tryst/status"
)

const dev1 = "/job:w/replica:0/task:0/device:CPU:1"

// incarnations has the devices of the tests.
func incarnations(device string) (uint64, bool) {
	n, ok := map[string]uint64{dev: 1 << 63, dev1: 2}[device]
	return n, ok
}

func split(t testing.TB, s *fakeSet, lines string) map[string]*Graph {
	t.Helper()
	parts, err := Split(importGraph(t, s, lines), incarnations)
	if err != nil {
		t.Fatal(err)
	}
	return parts
}

func onDev1(line string) string { return line + ` device="` + dev1 + "\"\n" }

// ops returns the names and ops of a graph.
func ops(g *Graph) string {
	var list []string
	for _, n := range g.Nodes {
		list = append(list, n.Op)
	}
	slices.Sort(list)
	return strings.Join(list, " ")
}

func TestSplitOfOneDevice(t *testing.T) {
	s := newFakeSet()
	g := importGraph(t, s, three)
	parts, err := Split(g, incarnations)
	if err != nil || len(parts) != 1 || parts[dev] != g {
		t.Errorf("%v, %v", parts, err)
	}
}

// TestNodesOfSplitHaveDefinitions: the outputs of the nodes that Split adds have names, by which a kernel set
// that makes functions refers to them.
func TestNodesOfSplitHaveDefinitions(t *testing.T) {
	parts := split(t, newFakeSet(), three+"first = NoOp()\n"+onDev1("a = AddV2(three, three, ^first) T=int32"))
	added := 0
	for _, p := range parts {
		for _, n := range p.Nodes {
			if strings.Contains(n.Name, "_G") {
				added++
			}
			if len(n.OpDef.GetInputArg()) != len(n.In) || len(n.OpDef.GetOutputArg()) != len(n.OutTypes) {
				t.Errorf("node %s (%s) has %d inputs and %d outputs, its definition says %v", n.Name, n.Op, len(n.In), len(n.OutTypes), n.OpDef)
			}
		}
	}
	if added != 6 { // two times _Send and _Recv, a Const, an Identity
		t.Errorf("%d nodes were added", added)
	}
}

// TestSplitLeavesNoEdgeBetweenParts: no input of a node is in another part, also when a node waits for the Merge
// of a control loop on another device, which no master lets it do.
func TestSplitLeavesNoEdgeBetweenParts(t *testing.T) {
	parts := split(t, newFakeSet(), three+"_cloopm = Merge(three, three) T=int32 N=2\n"+onDev1("a = Identity(three, ^_cloopm) T=int32"))
	for device, p := range parts {
		for _, n := range p.Nodes {
			for _, in := range n.In {
				if in.Node.Device != device {
					t.Errorf("node %s on %s has the input %s on %s", n.Name, device, in.Node.Name, in.Node.Device)
				}
			}
			for _, c := range n.ControlIn {
				if c.Device != device {
					t.Errorf("node %s on %s waits for %s on %s", n.Name, device, c.Name, c.Device)
				}
			}
		}
	}
	for _, n := range parts[dev1].Nodes {
		if n.Name == "a" && len(n.ControlIn) != 1 {
			t.Errorf("a waits for %d nodes", len(n.ControlIn))
		}
	}
}

func TestSplitSendsValuesOnce(t *testing.T) {
	s := newFakeSet()
	parts := split(t, s, three+onDev1("a = AddV2(three, three) T=int32")+onDev1("b = Identity(three) T=int32")+"c = AddV2(a, b) T=int32"+fetch("r", "c"))
	if got := ops(parts[dev]); got != "AddV2 Const _Recv _Recv _Send _Send" {
		t.Errorf("CPU:0 has %s", got)
	}
	if got := ops(parts[dev1]); got != "AddV2 Identity _Recv _Send _Send" {
		t.Errorf("CPU:1 has %s", got)
	}
	for _, n := range parts[dev].Nodes {
		if n.Op == "_Send" && n.Text("_dst") == "a" {
			if n.Text("send_device") != dev || n.Text("recv_device") != dev1 || uint64(n.Int("send_device_incarnation")) != 1<<63 || n.Type("T") != 3 || !strings.HasPrefix(n.Text("tensor_name"), "edge_") {
				t.Errorf("attributes of %s: %v", n.Name, n.Def)
			}
		}
	}
	out, err := runGraphs(t, s, parts[dev], parts[dev1])
	if err != nil || scalar(t, out["r"]) != 9 || len(out) != 1 {
		t.Errorf("%v, %v", out, err)
	}
}

func TestSplitControlEdge(t *testing.T) {
	s := newFakeSet()
	parts := split(t, s, "a = NoOp()\n"+onDev1("b = NoOp(^a)")+onDev1("c = NoOp(^a)"))
	if got := ops(parts[dev]); got != "Const NoOp _Send" {
		t.Errorf("CPU:0 has %s", got)
	}
	if got := ops(parts[dev1]); got != "Identity NoOp NoOp _Recv" {
		t.Errorf("CPU:1 has %s", got)
	}
	if out, err := runGraphs(t, s, parts[dev], parts[dev1]); err != nil || len(out) != 0 {
		t.Errorf("%v, %v", out, err)
	}
}

// TestSplitDefinesItsNodes: a Const or Identity that Split adds has TensorFlow's definition, since a
// kernel set may run it in a function, where its inputs and outputs have names.
func TestSplitDefinesItsNodes(t *testing.T) {
	s := newFakeSet()
	found := map[string]bool{}
	for _, p := range split(t, s, "a = NoOp()\n"+onDev1("b = NoOp(^a)")) {
		for _, n := range p.Nodes {
			if kindOf(n.Op) == kindTransfer {
				continue
			}
			found[n.Op] = true
			if want := s.OpDef(n.Op); !proto.Equal(n.OpDef, want) {
				t.Errorf("node %q (%s) has the definition %v, want %v", n.Name, n.Op, n.OpDef, want)
			}
		}
	}
	if !found["Const"] || !found["Identity"] {
		t.Errorf("the parts have %v", found)
	}
}

func TestSplitReadsReferencesAsLateAsTheNode(t *testing.T) {
	s := newFakeSet()
	def := parseGraph(t, "v = VariableV2() dtype=int32\n"+three+"a = Assign(v, three) T=int32\n"+onDev1("i = Identity(v, ^a) T=int32")+onDev1("j = Identity(v, ^a) T=int32")+fetch("r", "i"))
	def.Node[0].Attr["shape"] = shapeAttr()
	g, err := Import(def, ImportOptions{Set: s})
	if err != nil {
		t.Fatal(err)
	}
	parts, err := Split(g, incarnations)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range parts[dev1].Nodes {
		if n.Op == "_Recv" && n.Text("_src") == "v" && len(n.ControlIn) != 1 {
			t.Errorf("%s does not wait for the assignment: %v", n.Name, n.ControlIn)
		}
	}
	if got := ops(parts[dev1]); got != "Identity Identity Identity _Recv _Recv _Recv _Send" {
		t.Errorf("CPU:1 has %s: each reader of a reference has its _Recv", got)
	}
}

func TestSplitRefuses(t *testing.T) {
	s := newFakeSet()
	for _, tc := range []struct{ name, lines, want string }{
		{"no device", `n = NoOp() device=""`, "Missing device name in: n"},
		{"another task", `n = NoOp() device="/job:x/replica:0/task:0/device:CPU:0"`, `node "n" is placed on /job:x/replica:0/task:0/device:CPU:0, which is no device of this worker`},
		{"loop without a condition", loopGraph(1, 1) + "\n" + onDev1("i = Identity(b) T=int32"), ""},
		{"NextIteration to two devices", strings.Replace(loopGraph(1, 1), "x = Exit", onDev1("m2 = Merge(e, n) T=int32 N=2")+"x = Exit", 1), `node "e" (Enter) feeds nodes on two devices`},
		{"no LoopCond", strings.Replace(loopGraph(1, 1), "LoopCond(l)", `Identity(l) T=bool`, 1) + "\n" + onDev1("i = Identity(b) T=int32"), `A cross-device loop must have a pivot predicate: w: node "i" on ` + dev1},
	} {
		_, err := Split(importGraph(t, s, tc.lines), incarnations)
		checkError(t, tc.name, err, status.InvalidArgument, tc.want)
	}
}

func TestSplitKeepsReferencesOnTheirDevice(t *testing.T) {
	s := newFakeSet()
	def := parseGraph(t, "v = VariableV2() dtype=int32\n"+three+onDev1("a = Assign(v, three) T=int32"))
	def.Node[0].Attr["shape"] = shapeAttr()
	g, err := Import(def, ImportOptions{Set: s})
	if err != nil {
		t.Fatal(err)
	}
	_, err = Split(g, incarnations)
	checkError(t, "reference", err, status.InvalidArgument, `input 0 of node "a" on `+dev1+` is a reference to output 0 of "v" on `+dev+": a reference cannot leave its device")
}

func TestSplitFillsInTheIncarnation(t *testing.T) {
	s := newFakeSet()
	g := importGraph(t, s, three+`r = _Send(three) T=int32 tensor_name="x" send_device="`+dev1+`" send_device_incarnation=0 recv_device="b"`)
	if _, err := Split(g, incarnations); err != nil {
		t.Fatal(err)
	}
	if got := g.Nodes[1].Int("send_device_incarnation"); got != 2 {
		t.Errorf("incarnation %d", got)
	}
}

// TestSplitEqualsTheProgram places the nodes of random programs on two devices at random: values,
// dead values and loops cross between them.
func TestSplitEqualsTheProgram(t *testing.T) {
	for seed := range searchSeeds(t) / 3 {
		r := rand.New(rand.NewPCG(seed, 2))
		p := randomProgram(r)
		lines := p.graph(func() string { return []string{dev, dev1}[r.IntN(2)] })
		s := newFakeSet()
		g := importGraph(t, s, lines)
		parts, err := Split(g, incarnations)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		var list []*Graph
		for _, part := range parts {
			list = append(list, part)
		}
		out, err := runGraphs(t, s, list...)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for i, want := range p.run() {
			if got := scalar(t, out[fmt.Sprintf("v%d", i)]); got != want {
				t.Fatalf("seed %d: v%d is %d, want %d", seed, i, got, want)
			}
		}
		if len(out) != programVars {
			t.Fatalf("seed %d: values that nobody has received: %v", seed, out)
		}
	}
}

// TestSplitAddsNoSecondControlLoop splits a graph whose control loops are there, as a master sends it.
func TestSplitAddsNoSecondControlLoop(t *testing.T) {
	s := newFakeSet()
	lines := loopGraph(3, 2) + "\n" + onDev1("i = Identity(b, ^_cloopm) T=int32") +
		onDev1(`f0 = Const() dtype=int32 value=#0`) +
		onDev1(`_cloope = Enter(f0) T=int32 frame_name="w" parallel_iterations=2`) +
		onDev1("_cloopm = Merge(_cloope, _cloopn) T=int32 N=2") +
		onDev1("_cloops = Switch(_cloopm, c, ^_cloopm) T=int32") +
		onDev1("_cloopn = NextIteration(_cloops:1) T=int32") +
		onDev1(strings.TrimSpace(fetch("r", "i")))
	parts := split(t, s, lines)
	if got := ops(parts[dev1]); got != "Const Enter Identity Merge NextIteration Switch _Recv _Recv _Send" {
		t.Errorf("CPU:1 has %s", got)
	}
	out, err := runGraphs(t, s, parts[dev], parts[dev1])
	if err != nil || len(out) != 4 {
		t.Errorf("%v, %v", out, err)
	}
}
