package ops

import (
	"strings"
	"sync/atomic"
	"unicode/utf8"

	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

// printOps show values in the log of the task (graph.Step.Print).
func printOps() []entry {
	return []entry{
		{`Print(input: T, data: U) -> (output: T); T: type; U: list(type) >= 0; message: string = ""; first_n: int = -1; ` +
			`summarize: int = 3; stateful`, newPrint},
		{`PrintV2(input: string); output_stream: string = "stderr"; end: string = "\n"; stateful`, newPrintV2},
		{`StringFormat(inputs: T) -> (output: string); T: list(type) >= 0; template: string = "%s"; placeholder: string = "%s"; ` +
			`summarize: int = 3`, newStringFormat},
	}
}

func newPrint(n *graph.Node, _ *State) (graph.Kernel, error) {
	message, first, summarize := n.Text("message"), n.Int("first_n"), int(n.Int("summarize"))
	var calls atomic.Int64
	return graph.KernelFunc(func(c *graph.Context) error {
		c.Forward(0, 0)
		if first >= 0 && calls.Add(1) > first {
			calls.Store(first) // so that it never wraps
			return nil
		}
		if c.Step.Print == nil {
			return nil
		}
		var b strings.Builder
		b.WriteString(message)
		for i := 1; i < len(c.Inputs) && b.Len() <= maxPrinted; i++ {
			b.WriteString("[" + summary(c.Input(i), summarize) + "]")
		}
		c.Step.Print(c.Node, "stderr", printed(b.String()))
		return nil
	}), nil
}

// printStreams are the streams of PrintV2. Files are refused: a graph reaches none.
var printStreams = []string{"stdout", "stderr", "log(info)", "log(warning)", "log(error)"}

func newPrintV2(n *graph.Node, _ *State) (graph.Kernel, error) {
	stream := n.Text("output_stream")
	known := strings.HasPrefix(stream, "file://")
	if known {
		return nil, refused("output_stream = %q", stream)
	}
	for _, s := range printStreams {
		known = known || s == stream
	}
	if !known {
		return nil, invalid("Unknown output stream: %s, Valid streams are: %s", stream, strings.Join(printStreams, " "))
	}
	return graph.KernelFunc(func(c *graph.Context) error {
		if s := c.Input(0).Shape(); s.Rank() != 0 {
			return invalid("Input is expected to be scalar, but got %s", s)
		}
		if c.Step.Print != nil {
			c.Step.Print(c.Node, stream, printed(c.Input(0).Elements()[0]))
		}
		return nil
	}), nil
}

// printed returns what the log shows of a text. The result has no memory of the text.
func printed(text string) string {
	if len(text) <= maxPrinted {
		return strings.Clone(text)
	}
	end := maxPrinted
	for end > maxPrinted-utf8.UTFMax && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + "..."
}

// newStringFormat makes the kernel of StringFormat: a template with the texts of tensors in it.
func newStringFormat(n *graph.Node, _ *State) (graph.Kernel, error) {
	parts := []string{n.Text("template")}
	if placeholder := n.Text("placeholder"); placeholder != "" {
		parts = strings.Split(parts[0], placeholder)
	}
	if len(parts)-1 != len(n.InTypes) {
		return nil, invalid("num placeholders in template and num inputs must match: %d vs. %d", len(parts)-1, len(n.InTypes))
	}
	summarize := n.Int("summarize")
	return graph.KernelFunc(func(c *graph.Context) error {
		if err := c.Scratch(formatBytes(c, summarize)); err != nil {
			return err
		}
		w := formatter{summarize: summarize}
		for i, part := range parts {
			w.write(part)
			if i < len(parts)-1 {
				w.tensor(c.Input(i))
			}
		}
		if w.full {
			return invalid("the text is longer than %d bytes: the kernel set go makes no such texts", maxFormatted)
		}
		return setStrings(c, 0, tensor.Shape{}, func(int) string { return w.b.String() })
	}), nil
}

// formatBytes is what the text of the inputs takes at most.
func formatBytes(c *graph.Context, summarize int64) int64 {
	const elementText = 64 // a number, and what is around it
	size := int64(len(c.Node.Text("template")))
	for i := range c.Inputs {
		t := c.Input(i)
		if t == nil {
			continue
		}
		shown := int64(1)
		for _, d := range t.Shape().Dims() {
			if summarize >= 0 {
				d = min(d, 2*min(summarize, maxFormatted))
			}
			if shown *= d; shown > maxFormatted {
				break
			}
		}
		size += elementText * shown
		if t.DType() == tensor.String {
			for _, s := range t.Elements() {
				size += 4 * int64(len(s))
			}
		}
	}
	return 2 * min(size, 4*maxFormatted)
}

// formatter writes tensors as tf.print does: the first and the last elements of each dimension.
type formatter struct {
	summarize int64
	b         strings.Builder
	full      bool // maxFormatted is reached
	text      func(i int) string
	dims      []int64
	ends      int64 // how many elements are shown at either end
	quote     string
}

func (w *formatter) write(s string) {
	if w.full = w.full || len(s) > maxFormatted-w.b.Len(); !w.full {
		w.b.WriteString(s)
	}
}

func (w *formatter) tensor(t *tensor.Tensor) {
	if t == nil {
		w.write("?") // a resource or a variant
		return
	}
	all := t.Shape().Elements()
	w.ends = all
	if w.summarize >= 0 {
		w.ends = min(w.summarize, all)
	}
	text, known := elementText(t, maxFormatted/4)
	if !known {
		w.write("[")
		for i := range w.ends {
			if i > 0 {
				w.write(" ")
			}
			if w.write("?"); w.full {
				return
			}
		}
		if w.ends < all {
			w.write("...")
		}
		w.write("]")
		return
	}
	w.text, w.dims, w.quote = text, t.Shape().Dims(), ""
	if t.DType() == tensor.String {
		w.quote = `"`
		for _, s := range t.Elements() {
			w.full = w.full || len(s) > maxFormatted/4
		}
	}
	if len(w.dims) > 0 || w.ends > 0 {
		w.dimension(0, 0)
	}
}

// dimension writes the elements from at on, of dimension d.
func (w *formatter) dimension(d int, at int64) {
	if w.full {
		return
	}
	if d == len(w.dims) {
		w.write(w.quote + w.text(int(at)) + w.quote)
		return
	}
	n, stride := w.dims[d], product64(w.dims[d+1:])
	w.write("[")
	for i := range min(w.ends, n) {
		if i > 0 {
			w.space(d)
		}
		if w.dimension(d+1, at+i*stride); w.full {
			return
		}
	}
	if n-w.ends > w.ends {
		w.space(d)
		w.write("...")
	}
	for i := max(w.ends, n-w.ends); i < n; i++ {
		w.space(d)
		if w.dimension(d+1, at+i*stride); w.full {
			return
		}
	}
	w.write("]")
}

// space writes what is between two elements of dimension d.
func (w *formatter) space(d int) {
	if inner := len(w.dims) - d - 1; inner > 0 {
		w.write(strings.Repeat("\n", inner) + strings.Repeat(" ", d+1))
		return
	}
	w.write(" ")
}
