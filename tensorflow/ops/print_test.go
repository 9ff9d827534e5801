package ops

import (
	"slices"
	"strings"
	"testing"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

// prints lets the nodes of the bench print into the result.
func (b *bench) prints() *[]string {
	var list []string
	b.step.Print = func(n *graph.Node, stream, text string) { list = append(list, n.Name+" "+stream+": "+text) }
	return &list
}

func TestPrintShowsWhatTensorFlowPrints(t *testing.T) {
	b := newBench(t)
	x := vec[float32](1.5)
	list := b.prints()
	data := []graph.Value{x, vec[int32](1, 2, 3, 4), text([]int64{2}, "a", "b\n"), in([]int64{2, 2}, float32(1.5), 2, 3, 4)}
	b.want(b.run("Print", attrs{"message": "msg: "}, data...)[0], "float[1]: 1.5")
	b.run("Print", attrs{"message": "alone"}, x)
	b.run("PrintV2", nil, text(nil, "hello\nx"))
	b.run("PrintV2", attrs{"output_stream": "log(warning)", "end": ""}, text(nil, "careful"))
	want := []string{
		`Print stderr: msg: [1 2 3...][a b\n][[1.5 2][3...]...]`, "Print stderr: alone", "PrintV2 stderr: hello\nx", "PrintV2 log(warning): careful",
	}
	if !slices.Equal(*list, want) {
		t.Errorf("got  %q\nwant %q", *list, want)
	}
}

// TestPrintEndsAfterItsFirstTimes: first_n counts the runs of a node.
func TestPrintEndsAfterItsFirstTimes(t *testing.T) {
	b := newBench(t)
	list := b.prints()
	x := scalar[int32](1)
	n := b.node("p", "Print", attrs{"first_n": 2}, x, x)
	k, err := b.state.NewKernel(n)
	if err != nil {
		t.Fatal(err)
	}
	for range 5 {
		if _, err := b.compute(k, n, x, x); err != nil {
			t.Fatal(err)
		}
	}
	if len(*list) != 2 {
		t.Errorf("%d lines, want 2", len(*list))
	}
}

// TestWhatANodePrintsIsBounded: a string may have any size.
func TestWhatANodePrintsIsBounded(t *testing.T) {
	b := newBench(t)
	list := b.prints()
	long := text(nil, strings.Repeat("\u20ac", 1<<20))
	b.run("PrintV2", nil, long)
	b.run("Print", nil, long, long, long)
	b.run("Print", attrs{"message": strings.Repeat("m", 1<<20)}, long)
	for _, line := range *list {
		if len(line) > maxPrinted+40 || !strings.HasSuffix(line, "...") {
			t.Errorf("a line of %d bytes: %q", len(line), line[len(line)-10:])
		}
	}
	if err := b.fails("StringFormat", nil, long); status.CodeOf(err) != status.InvalidArgument || !strings.Contains(err.Error(), "longer than 1048576 bytes") {
		t.Errorf("got %v", err)
	}
	if err := b.fails("StringFormat", attrs{"summarize": -1}, vec(make([]int32, 1<<20)...)); status.CodeOf(err) != status.InvalidArgument {
		t.Errorf("got %v", err)
	}
	b.pooled(1 << 20)
	if err := b.fails("StringFormat", attrs{"summarize": -1}, vec(make([]int32, 1<<18)...)); status.CodeOf(err) != status.ResourceExhausted {
		t.Errorf("got %v", err)
	}
}

func TestWrongUsesOfPrintAreErrors(t *testing.T) {
	b := newBench(t)
	one := scalar[int32](1)
	for want, err := range map[string]error{
		"Unknown output stream: nowhere, Valid streams are: stdout stderr log(info) log(warning) log(error)": b.fails("PrintV2", attrs{"output_stream": "nowhere"}, text(nil, "x")),
		"Input is expected to be scalar, but got [1]":                                                        b.fails("PrintV2", nil, text([]int64{1}, "x")),
		"num placeholders in template and num inputs must match: 1 vs. 2":                                    b.fails("StringFormat", nil, one, one),
		`the kernel set go has no kernel for output_stream = "file:///tmp/x"`:                                b.fails("PrintV2", attrs{"output_stream": "file:///tmp/x"}, text(nil, "x")),
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
