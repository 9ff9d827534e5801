package doctest

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// failing is a test that keeps the text with which it failed.
type failing struct {
	testing.TB
	text string
}

func (*failing) Helper() {}
func (f *failing) Fatalf(format string, args ...any) {
	f.text = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// block runs Block and returns the text of its failure.
func block(t *testing.T, path, want string, update bool) string {
	f := &failing{TB: t}
	done := make(chan bool)
	go func() {
		defer close(done)
		Block(f, path, "x", want, update, "make x")
	}()
	<-done
	return f.text
}

// TestBlock: another block is an error that says how to write it, and is written with update; what is around
// it stays.
func TestBlock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "page.md")
	write := func(page string) {
		if err := os.WriteFile(path, []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("before\n<!-- x:begin -->\nold\n<!-- x:end -->\nafter\n")
	if text := block(t, path, "old\n", false); text != "" {
		t.Error(text)
	}
	if text := block(t, path, "new\n", false); !strings.Contains(text, "write it with make x") {
		t.Errorf("another block: %q", text)
	}
	if text := block(t, path, "new\n", true); text != "" {
		t.Error(text)
	}
	if page, err := os.ReadFile(path); err != nil || string(page) != "before\n<!-- x:begin -->\nnew\n<!-- x:end -->\nafter\n" {
		t.Errorf("%q, %v", page, err)
	}
	write("before\n<!-- x:begin -->\nold\n")
	if text := block(t, path, "old\n", true); !strings.Contains(text, "has no block") {
		t.Errorf("without an end: %q", text)
	}
}
