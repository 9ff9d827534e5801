package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
)

// TestMainJob: what `make run` does, with a small model. One server, and the checkpoint
// pulled and verified over gRPC and over verbs, all of it over the wire that was meant.
func TestMainJob(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("bash is missing: scripts/run.sh needs it")
	}
	dir := t.TempDir()
	program := filepath.Join(dir, "tryst")
	tool := "go"
	if name := os.Getenv("GO"); name != "" { // the one that make uses
		tool = name
	}
	if out, err := exec.Command(tool, "build", "-o", program, "../cmd/tryst").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	cmd := exec.CommandContext(t.Context(), bash, "../scripts/run.sh", program, filepath.Join(dir, "run"), "tiny")
	cmd.Env = append(os.Environ(), "TRYST_PROVIDER=roce") // on a host with RDMA, too
	out, err := cmd.Output()
	if err != nil {
		log, _ := os.ReadFile(filepath.Join(dir, "run", "server.log"))
		t.Fatalf("%v\n%s\n%s", err, out, log)
	}
	row := func(wire string) string {
		return `tiny +(\d+) +\d+ +\d+\.\d{3} s +\d+\.\d{3} s +\d+\.\d\d +xxh64:[0-9a-f]{16} +(\d+) over ` + wire + `\n`
	}
	m := regexp.MustCompile(`\nPUBLICATION +TENSORS +BYTES +TIME +TRANSFER +GB/S +DIGEST, CHECKED +ROUTE\n` + row("grpc") + row(`verbs \(roce-\w+\)`) + `$`).FindStringSubmatch(string(out))
	if m == nil {
		t.Fatalf("no table of two wires:\n%s", out)
	}
	for _, n := range m[2:] {
		if n != m[1] {
			t.Errorf("of %s tensors %s came over a wire:\n%s", m[1], n, out)
		}
	}
	left, err := filepath.Glob(filepath.Join(dir, "run", "*"))
	if err != nil || len(left) != 1 {
		t.Errorf("it has left %v (%v), and the log alone was to stay", left, err)
	}
}
