package plot

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// script puts a program named tryst-plot into a directory that is on PATH alone.
func script(t *testing.T, text string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, program), []byte("#!/bin/sh\n"+text), 0o755); err != nil { //nolint:gosec // it is run
		t.Fatal(err)
	}
	t.Setenv("PATH", dir)
}

// TestDrawPassesTheFiles to the program, also ones that look like flags.
func TestDrawPassesTheFiles(t *testing.T) {
	said := filepath.Join(t.TempDir(), "said")
	script(t, `echo "$@" >"`+said+`"`)
	if err := Draw(t.Context(), "--a.jsonl", "b.jsonl"); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(said)
	if err != nil || string(text) != "-- --a.jsonl b.jsonl\n" {
		t.Errorf("%q, %v", text, err)
	}
}

// TestDrawTellsWhatIsMissing and what the program says.
func TestDrawTellsWhatIsMissing(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if err := Draw(t.Context(), "a.jsonl"); err == nil || !strings.Contains(err.Error(), "make build/tryst-plot builds it") {
		t.Error(err)
	}
	script(t, "echo a.jsonl:1: no row; exit 1")
	if err := Draw(t.Context(), "a.jsonl"); err == nil || !strings.Contains(err.Error(), "a.jsonl:1: no row") {
		t.Error(err)
	}
}
