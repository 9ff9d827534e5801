package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestEachCommandHasAPage, which names the command, says what it does, and lists its flags.
func TestEachCommandHasAPage(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "man1")
	if err := run([]string{dir}); err != nil {
		t.Fatal(err)
	}
	for page, flag := range map[string]string{
		"tryst.1": "", "tryst-serve.1": "publish", "tryst-pull.1": "from", "tryst-keys.1": "", "tryst-doctor.1": "cluster",
		"tryst-top.1": "once", "tryst-support.1": "out", "tryst-bench.1": "size", "tryst-gen.1": "model",
	} {
		text, err := os.ReadFile(filepath.Join(dir, page))
		if err != nil {
			t.Error(err)
			continue
		}
		for _, want := range []string{".SH NAME", ".SH SYNOPSIS", strings.TrimSuffix(page, ".1"), flag} {
			if !strings.Contains(strings.ReplaceAll(string(text), `\-`, "-"), want) {
				t.Errorf("%s has no %q", page, want)
			}
		}
	}
}

// TestArguments: without a directory nothing is written.
func TestArguments(t *testing.T) {
	if err := run(nil); err == nil {
		t.Error("no error")
	}
}
