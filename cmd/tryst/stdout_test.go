package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// With --out - stdout has the file and nothing else.
func TestPullToStdout(t *testing.T) {
	model := generate(t)
	address := serve(t, "tiny="+model)
	t.Chdir(t.TempDir())
	for _, json := range []string{"--json=false", "--json"} {
		r := tryst(t, "pull", "--from", address, "--out", "-", json)
		want, err := os.ReadFile(model)
		if err != nil {
			t.Fatal(err)
		}
		if did(t, r) != string(want) {
			t.Errorf("stdout is not the file: %d bytes, want %d", len(r.out), len(want))
		}
		if !strings.Contains(r.err, "100%") || !strings.Contains(r.err, "tiny") || !strings.Contains(r.err, "xxh64:") {
			t.Errorf("no progress and result on stderr: %q", r.err)
		}
	}
	nothingLeft(t, ".")
}

func TestPullSeveralFilesToStdout(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "model")
	did(t, tryst(t, "gen", "--model", "tiny", "--shards", "2", "--out", dir))
	address := serve(t, dir)
	failed(t, tryst(t, "pull", "--from", address, "--out", "-"), exitFailed, "in 2 files", "into a directory")
}
