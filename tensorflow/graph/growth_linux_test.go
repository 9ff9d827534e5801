package graph

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/tryst-rdma/tryst/internal/growthtest"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
)

// importOf returns the import of a graph, which must be right.
func importOf(t *testing.T, def *tfpb.GraphDef) func() {
	return func() {
		if _, err := Import(def, ImportOptions{Set: newFakeSet()}); err != nil {
			t.Fatal(err)
		}
	}
}

func repeatLines(n int, format string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, strings.ReplaceAll(format, "%d", "%[1]d")+"\n", i)
	}
	return b.String()
}

// TestCallsAreCheckedInLinearTime has n calls of one body of n nodes with a device.
func TestCallsAreCheckedInLinearTime(t *testing.T) {
	growthtest.Check(t, 300, func(n int) func() {
		f := function(t, "f(x: int32) -> (y: int32)", repeatLines(n, "n%d = VariableV2() dtype=int32")+"y <- x")
		for i, d := range f.NodeDef {
			d.Device = "/device:CPU:" + strconv.Itoa(i)
			d.Attr["shape"] = shapeAttr()
		}
		return importOf(t, withLibrary(t, three+repeatLines(n, "c%d = f(three)"), f))
	})
}

func enters(t *testing.T, n int) *tfpb.GraphDef {
	return parseGraph(t, three+repeatLines(n, `e%d = Enter(three) T=int32 frame_name="f%d"`))
}

func TestFramesArePlannedInLinearTime(t *testing.T) {
	growthtest.Check(t, 1000, func(n int) func() {
		g, err := Import(enters(t, n), ImportOptions{Set: newFakeSet()})
		if err != nil {
			t.Fatal(err)
		}
		return func() {
			if _, err := newPlan(g); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestFramesAreEnteredInLinearTime(t *testing.T) {
	growthtest.Check(t, 1000, func(n int) func() {
		g, err := Import(enters(t, n), ImportOptions{Set: newFakeSet()})
		if err != nil {
			t.Fatal(err)
		}
		plan, err := newPlan(g)
		if err != nil {
			t.Fatal(err)
		}
		it := &iteration{frame: &frameState{plan: plan.frames[0]}}
		p := newPropagator(plan)
		return func() {
			for _, item := range plan.items[1:] {
				p.child(it, item)
			}
			for i := len(plan.items) - 1; i > 0; i-- {
				p.child(it, plan.items[i])
			}
		}
	})
}

func TestControlInputsAreConnectedInLinearTime(t *testing.T) {
	growthtest.Check(t, 2000, func(n int) func() {
		return importOf(t, parseGraph(t, repeatLines(n, "a%d = NoOp()")+"z = NoOp("+strings.TrimSuffix(strings.ReplaceAll(repeatLines(n, "^a%d,"), "\n", " "), ", ")+")"))
	})
}

func TestControlInputsAreSplitInLinearTime(t *testing.T) {
	growthtest.Check(t, 1000, func(n int) func() {
		// dst reads a variable of another device, so its _Recv waits for all that dst waits for.
		lines := onDev1("v = VariableV2() dtype=int32") + repeatLines(n, "a%d = NoOp()") +
			"dst = Identity(v, " + strings.TrimSuffix(strings.ReplaceAll(repeatLines(n, "^a%d,"), "\n", " "), ", ") + ") T=int32"
		def := parseGraph(t, lines)
		def.Node[0].Attr["shape"] = shapeAttr()
		g, err := Import(def, ImportOptions{Set: newFakeSet()})
		if err != nil {
			t.Fatal(err)
		}
		return func() {
			if _, err := Split(g, incarnations); err != nil {
				t.Fatal(err)
			}
		}
	})
}
