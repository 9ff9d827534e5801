package graph

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// program is a random program of assignments, conditionals and loops over a few variables. It can
// be run directly, and it can be written as a graph of Switch, Merge, Enter and so on, as TensorFlow
// writes tf.cond and tf.while_loop. Comparing both tests the propagation. A constant in a branch or
// loop has no input: a control edge from the pivot of the block says whether and how often it runs.
type program struct{ body []statement }

const programVars = 3

// statement is an assignment, a conditional or a loop.
type statement struct {
	kind        string // "add", "set", "if", "while"
	dst, a, b   int    // add: dst = a + b; set: dst = a; if: a < b; while: rounds
	rounds      int
	parallel    int
	first, then []statement
}

func randomProgram(r *rand.Rand) program { return program{randomBlock(r, 3)} }

func randomBlock(r *rand.Rand, depth int) []statement {
	var list []statement
	for range 1 + r.IntN(3) {
		s := statement{kind: "add", dst: r.IntN(programVars), a: r.IntN(programVars), b: r.IntN(programVars)}
		if r.IntN(4) == 0 {
			s.kind = "set"
		}
		if depth > 0 {
			switch r.IntN(4) {
			case 0:
				s.kind, s.first, s.then = "if", randomBlock(r, depth-1), randomBlock(r, depth-1)
			case 1:
				s.kind, s.rounds, s.parallel, s.first = "while", r.IntN(4), 1+r.IntN(3), randomBlock(r, depth-1)
			}
		}
		list = append(list, s)
	}
	return list
}

// run runs the program directly. The sums wrap around.
func (p program) run() [programVars]int32 {
	v := [programVars]int32{1, 2, 3}
	runBlock(p.body, &v)
	return v
}

func runBlock(list []statement, v *[programVars]int32) {
	for _, s := range list {
		switch s.kind {
		case "add":
			v[s.dst] = v[s.a] + v[s.b]
		case "set":
			v[s.dst] = int32(s.a)
		case "if":
			if v[s.a] < v[s.b] {
				runBlock(s.first, v)
			} else {
				runBlock(s.then, v)
			}
		case "while":
			for range s.rounds {
				runBlock(s.first, v)
			}
		}
	}
}

// writer writes a program as a graph.
type writer struct {
	b      strings.Builder
	n      int
	device func() string
}

// graph returns the program as lines for parseGraph. The results are sent as v0, v1, v2. device
// returns the device of each node.
func (p program) graph(device func() string) string {
	w := &writer{device: device}
	var v [programVars]string
	for i := range v {
		v[i] = w.node("Const()", fmt.Sprintf("dtype=int32 value=#%d", i+1))
	}
	w.block(p.body, &v, "")
	for i := range v {
		fmt.Fprintf(&w.b, "v%d = _Send(%s) T=int32 tensor_name=\"v%d\"%s device=%q\n", i, v[i], i, sendAttrs, w.device())
	}
	return w.b.String()
}

// node adds a node and returns its name.
func (w *writer) node(call, attrs string) string {
	w.n++
	name := fmt.Sprintf("n%d", w.n)
	fmt.Fprintf(&w.b, "%s = %s %s device=%q\n", name, call, attrs, w.device())
	return name
}

// block writes the statements of a block. pivot is a node that is dead when the block does not run,
// and runs in each iteration of a loop; none at the top.
func (w *writer) block(list []statement, v *[programVars]string, pivot string) {
	for _, s := range list {
		switch s.kind {
		case "add":
			v[s.dst] = w.node(fmt.Sprintf("AddV2(%s, %s)", v[s.a], v[s.b]), "T=int32")
		case "set":
			v[s.dst] = w.node("Const("+after(pivot)+")", fmt.Sprintf("dtype=int32 value=#%d", s.a))
		case "if":
			w.cond(s, v, pivot)
		case "while":
			w.loop(s, v)
		}
	}
}

// after is the control input from a node; none if there is no node.
func after(node string) string {
	if node == "" {
		return ""
	}
	return "^" + node
}

func (w *writer) cond(s statement, v *[programVars]string, pivot string) {
	pred := w.node(fmt.Sprintf("Less(%s, %s)", v[s.a], v[s.b]), "T=int32")
	var yes, no [programVars]string
	for i := range v {
		sw := w.node(fmt.Sprintf("Switch(%s, %s)", v[i], pred), "T=int32")
		no[i], yes[i] = sw, sw+":1"
	}
	sw := w.node(fmt.Sprintf("Switch(%s, %s)", pred, pred), "T=bool")
	w.block(s.first, &yes, w.node("Identity("+sw+":1)", "T=bool"))
	w.block(s.then, &no, w.node("Identity("+sw+")", "T=bool"))
	for i := range v {
		inputs := no[i] + ", " + yes[i]
		if i == 0 && pivot != "" {
			inputs += ", " + after(pivot) // a Merge may also wait for a node
		}
		v[i] = w.node("Merge("+inputs+")", "T=int32 N=2")
	}
}

func (w *writer) loop(s statement, v *[programVars]string) {
	w.n++
	frame := fmt.Sprintf("T=int32 frame_name=\"loop%d\" parallel_iterations=%d", w.n, s.parallel)
	// The counter and the limit come from a variable, so that they are dead when the loop is in a
	// branch that was not taken: zero = v0 with the op Zero.
	zero := w.node("Zero("+v[0]+")", "")
	outer := [programVars + 1]string{v[0], v[1], v[2], zero}
	one := w.node("Enter("+w.node("One("+v[0]+")", "")+")", frame+" is_constant=true")
	limit := w.node("Enter("+w.node("Number("+v[1]+")", fmt.Sprintf("n=%d", s.rounds))+")", frame+" is_constant=true")
	var merge [programVars + 1]string
	var next [programVars + 1]int
	for i := range outer {
		enter := w.node("Enter("+outer[i]+")", frame)
		w.n += 2
		merge[i], next[i] = fmt.Sprintf("n%d", w.n-1), w.n
		fmt.Fprintf(&w.b, "%s = Merge(%s, n%d) T=int32 N=2 device=%q\n", merge[i], enter, next[i], w.device())
	}
	cond := w.node("LoopCond("+w.node(fmt.Sprintf("Less(%s, %s)", merge[programVars], limit), "T=int32")+")", "")
	var body [programVars]string
	var sw [programVars + 1]string
	for i := range merge {
		sw[i] = w.node(fmt.Sprintf("Switch(%s, %s)", merge[i], cond), "T=int32")
		if i < programVars {
			body[i] = sw[i] + ":1"
		}
	}
	w.block(s.first, &body, w.node("Identity("+sw[programVars]+":1)", "T=int32"))
	count := w.node(fmt.Sprintf("AddV2(%s:1, %s)", sw[programVars], one), "T=int32")
	for i, from := range append(body[:], count) {
		fmt.Fprintf(&w.b, "n%d = NextIteration(%s) T=int32 device=%q\n", next[i], from, w.device())
	}
	for i := range v {
		v[i] = w.node("Exit("+sw[i]+")", "T=int32")
	}
}

// oneDevice is the device of all nodes.
func oneDevice() string { return dev }
