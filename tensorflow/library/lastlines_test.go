package library

import (
	"io"
	"strings"
	"testing"
)

// TestLastLines: the last lines of a kernel process end before the stack trace of a failed check and
// before the report of the Go runtime, however the output is cut into writes.
func TestLastLines(t *testing.T) {
	const (
		check = "one\ntwo\nthree\nfour\nF0000 tensor.cc:904] Check failed: 1 == NumElements() (1 vs. 2)\n"
		trace = stackTrace + "\n"
		goes  = "SIGABRT: abort\nPC=0x1 m=0 sigcode=18446744073709551610\n\ngoroutine 0\n"
		last  = "two / three / four / F0000 tensor.cc:904] Check failed: 1 == NumElements() (1 vs. 2)"
	)
	frames := strings.Repeat("    @     0x7faa07ace564  tensorflow::TensorListGetItem<>::Compute()\n", 200)
	for name, c := range map[string]struct{ text, lines, signal string }{
		"no fault":                     {"one\ntwo\n", "one / two", ""},
		"failed check of 2.13":         {check + goes, last, "SIGABRT: abort"},
		"failed check of 2.21":         {check + trace + frames + goes, last, "SIGABRT: abort"},
		"nothing before the trace":     {trace + frames + goes, "", "SIGABRT: abort"},
		"killed in the trace":          {check + trace + frames, last, ""},
		"a signal without a check":     {"one\n" + goes, "one", "SIGABRT: abort"},
		"a check is not valid UTF-8":   {"F \xff\n" + trace + goes, "F ?", "SIGABRT: abort"},
		"long output before the fault": {frames + check + goes, last, "SIGABRT: abort"},
	} {
		for _, size := range []int{100, 1001, len(c.text)} {
			l := &lastLines{to: io.Discard}
			for rest := c.text; rest != ""; {
				n := min(size, len(rest))
				if _, err := l.Write([]byte(rest[:n])); err != nil {
					t.Fatal(err)
				}
				rest = rest[n:]
			}
			if lines, signal := l.text(); lines != c.lines || signal != c.signal {
				t.Errorf("%s, in writes of %d: %q, %q, want %q, %q", name, size, lines, signal, c.lines, c.signal)
			}
		}
	}
}
