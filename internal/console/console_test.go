package console_test

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"go.uber.org/goleak"

	"github.com/tryst-rdma/tryst/internal/console"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func table(t *testing.T, c console.Table, rows ...[]string) string {
	t.Helper()
	var b bytes.Buffer
	if err := c.Write(&b, rows...); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func wantText(t *testing.T, got, want string) {
	t.Helper()
	if want = strings.TrimPrefix(want, "\n"); got != want {
		t.Errorf("got:\n%swant:\n%s", got, want)
	}
}

var tensors = [][]string{
	{"NAME", "SHAPE", "DIGEST"},
	{"h.0.attn.weight", "[768,2304]", "xxh64:157b881ae3a59821"},
	{"é", "[]", "xxh64:0"},
}

// TestTableThatFits: it has a line for each row, whatever the width.
func TestTableThatFits(t *testing.T) {
	const want = `
NAME             SHAPE       DIGEST
h.0.attn.weight  [768,2304]  xxh64:157b881ae3a59821
é                []          xxh64:0
`
	for _, width := range []int{0, 51, 80} {
		wantText(t, table(t, console.Table{Width: width}, tensors...), want)
	}
	wantText(t, table(t, console.Table{AlignRight: true}, tensors...), `
           NAME       SHAPE                  DIGEST
h.0.attn.weight  [768,2304]  xxh64:157b881ae3a59821
              é          []                 xxh64:0
`)
}

// TestWideTableIsWrapped: its widest columns continue on the next line, and nothing is left out.
func TestWideTableIsWrapped(t *testing.T) {
	wantText(t, table(t, console.Table{Width: 40}, tensors...), `
NAME           SHAPE       DIGEST
h.0.attn.      [768,2304]  xxh64:
weight                     157b881ae3a59
                           821
é              []          xxh64:0
`)
}

// TestNarrowTableIsAList: where wrapping is not enough each row is a list, and a single row is one
// at once.
func TestNarrowTableIsAList(t *testing.T) {
	wantText(t, table(t, console.Table{Width: 26}, tensors...), `
NAME    h.0.attn.weight
SHAPE   [768,2304]
DIGEST  xxh64:157b881ae3a5
        9821

NAME    é
SHAPE   []
DIGEST  xxh64:0
`)
	wantText(t, table(t, console.Table{Width: 50}, tensors[:2]...), `
NAME    h.0.attn.weight
SHAPE   [768,2304]
DIGEST  xxh64:157b881ae3a59821
`)
	wantText(t, table(t, console.Table{Width: 5}, []string{"A", "B"}, []string{"", "0123456789"}), `
A
B  0123456789
`)
}

// TestNoLineIsWiderThanTheTerminal, at any width from 20 columns, and no character is lost.
func TestNoLineIsWiderThanTheTerminal(t *testing.T) {
	for width := 20; width < 60; width++ {
		for _, right := range []bool{false, true} {
			text := table(t, console.Table{Width: width, AlignRight: right}, tensors...)
			for line := range strings.Lines(text) {
				if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > width {
					t.Errorf("%d columns: a line of %d: %q", width, n, line)
				}
				if strings.HasSuffix(line, " \n") {
					t.Errorf("%d columns: a line ends in blanks: %q", width, line)
				}
			}
			for _, r := range "157b881ae3a59821" {
				if !strings.ContainsRune(text, r) {
					t.Errorf("%d columns: %q is lost in\n%s", width, r, text)
				}
			}
		}
	}
}

func TestWrap(t *testing.T) {
	for _, c := range []struct {
		s     string
		width int
		want  []string
	}{
		{"", 5, []string{""}},
		{"short", 5, []string{"short"}},
		{"any length", 0, []string{"any length"}},
		{"two words", 5, []string{"two", "words"}},
		{"three words here", 11, []string{"three words", "here"}},
		{"0123456789", 4, []string{"0123", "4567", "89"}},
		{"a.b.c.d.e", 5, []string{"a.b.", "c.d.e"}},
		{"ééééé é", 5, []string{"ééééé", "é"}},
	} {
		if got := console.Wrap(c.s, c.width); strings.Join(got, "|") != strings.Join(c.want, "|") {
			t.Errorf("Wrap(%q, %d) = %q, want %q", c.s, c.width, got, c.want)
		}
	}
}

// TestWidthOfNoTerminal: a file, a pipe and a buffer have none.
func TestWidthOfNoTerminal(t *testing.T) {
	f, err := os.Create(t.TempDir() + "/f")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if n, m := console.Width(f), console.Width(new(bytes.Buffer)); n != 0 || m != 0 {
		t.Errorf("widths %d and %d, want 0", n, m)
	}
}
