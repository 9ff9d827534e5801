package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
)

// TestRunScript runs the script of `make run` with a small model: a server, and a pull of the
// checkpoint with verification over each route. All tensors of a pull must take its route.
func TestRunScript(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("bash is missing: scripts/run.sh needs it")
	}
	dir := t.TempDir()
	program := filepath.Join(dir, "tryst")
	tool := "go"
	if name := os.Getenv("GO"); name != "" { // set by make
		tool = name
	}
	if out, err := exec.Command(tool, "build", "-o", program, "../cmd/tryst").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	cmd := exec.CommandContext(t.Context(), bash, "../scripts/run.sh", program, filepath.Join(dir, "run"), "tiny")
	cmd.Env = append(os.Environ(), "TRYST_PROVIDER=roce,tcp,shm") // also on a host with RDMA
	out, err := cmd.Output()
	if err != nil {
		log, _ := os.ReadFile(filepath.Join(dir, "run", "server.log"))
		t.Fatalf("%v\n%s\n%s", err, out, log)
	}
	row := func(route string) string {
		return `tiny +(\d+) +\d+ +\d+\.\d{3} s +\d+\.\d{3} s +\d+\.\d\d +xxh64:[0-9a-f]{16} +(\d+) over ` + route + `\n`
	}
	m := regexp.MustCompile(`\nPUBLICATION +TENSORS +BYTES +TIME +TRANSFER +GB/S +DIGEST, CHECKED +ROUTE\n` + row("grpc") + row(`verbs \(tcp0\)`) + row(`verbs \(shm0\)`) + row(`verbs \([\w-]+\)`) + `$`).FindStringSubmatch(string(out))
	if m == nil {
		t.Fatalf("got output\n%s\nwant a table with a row for each route", out)
	}
	for _, n := range m[2:] {
		if n != m[1] {
			t.Errorf("a pull took its route for %s tensors, want %s:\n%s", n, m[1], out)
		}
	}
	left, err := filepath.Glob(filepath.Join(dir, "run", "*"))
	if err != nil || len(left) != 1 {
		t.Errorf("the directory has %v (%v), want only the log", left, err)
	}
}
