package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/tryst-rdma/tryst/internal/bench"
)

// TestMain makes the test binary the second process, too: it is started with one argument.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == peerCommand {
		main()
		return
	}
	goleak.VerifyTestMain(m)
}

func execute(t *testing.T, args ...string) (code int, out, errs string) {
	t.Helper()
	var o, e bytes.Buffer
	code = run(t.Context(), strings.NewReader(""), &o, &e, args)
	return code, o.String(), e.String()
}

// TestMeasures runs a contest against two processes.
func TestMeasures(t *testing.T) {
	dir := t.TempDir()
	code, out, errs := execute(t, "--only", "versions-whole", "--routes", "tcp", "--size", "64KiB", "--tensors", "4", "--pairs", "1", "--json", "--json-dir", dir)
	if code != 0 {
		t.Fatalf("exit status %d\n%s", code, errs)
	}
	saved, err := os.ReadFile(filepath.Join(dir, "versions.jsonl"))
	if err != nil || string(saved) != out {
		t.Errorf("saved is\n%s\nnot\n%s (%v)", saved, out, err)
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) != 2 {
		t.Errorf("%d rows:\n%s", len(lines), out)
	}
	for _, line := range lines {
		var row bench.Row
		if err := json.Unmarshal([]byte(line), &row); err != nil || row.Count == 0 || row.Baseline != bench.PublishPull || row.Size != 64<<10 {
			t.Errorf("row %s: %v", line, err)
		}
	}
	if !strings.Contains(errs, "bench: load average") || !strings.Contains(errs, "bench: versions-whole over tcp\n") {
		t.Errorf("progress:\n%s", errs)
	}
}

func TestTablesAndHelp(t *testing.T) {
	code, out, errs := execute(t, "--only", "versions-bytes", "--size", "64KiB", "--link-size", "16KiB", "--tensors", "2")
	if code != 0 || !strings.Contains(out, "versions-bytes-low") || !strings.Contains(out, "versions-unchanged") {
		t.Errorf("exit status %d\n%s\n%s", code, out, errs)
	}
	if code, out, _ := execute(t, "--help"); code != 0 || !strings.Contains(out, "versions-stopped") {
		t.Errorf("exit status %d\n%s", code, out)
	}
}

func TestWrongUsage(t *testing.T) {
	for _, args := range [][]string{{"--only", "pull"}, {"--size", "much"}, {"--link-size", "little"}, {"--shares", "101"}, {"--tensors", "-1"}, {"x"}, {"--nonsense"}} {
		if code, _, errs := execute(t, args...); code != 2 || !strings.HasPrefix(errs, "tryst-bench-versions: ") {
			t.Errorf("%q: exit status %d\n%s", args, code, errs)
		}
	}
	var o, e bytes.Buffer
	if code := run(t.Context(), strings.NewReader("nonsense"), &o, &e, []string{peerCommand}); code != 1 || !strings.Contains(e.String(), "tryst-bench") {
		t.Errorf("exit status %d\n%s", code, &e)
	}
}
