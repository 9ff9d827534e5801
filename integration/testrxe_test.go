package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestSkippedSoftRoCETestsAreReported: if the tests of Soft-RoCE cannot run, the last line of make
// test-rxe says so, with the reason. If they are required, it fails.
func TestSkippedSoftRoCETestsAreReported(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("bash is missing: scripts/test-rxe.sh needs it")
	}
	tool := filepath.Join(t.TempDir(), "soft-roce")
	const script = "#!/bin/sh\nif [ \"$1\" = where ]; then echo \"$PLACE\"; else echo \"ran $*\"; exit 7; fi\n"
	if err := os.WriteFile(tool, []byte(script), 0o755); err != nil { //nolint:gosec // it is run
		t.Fatal(err)
	}
	for _, c := range []struct {
		place, required string
		fails           bool
		last            string
	}{
		{"none", "", false, "no test of ./a needs Soft-RoCE"},
		{"skip no qemu here", "", false, "SKIPPED the tests of Soft-RoCE: no qemu here"},
		{"skip no qemu here", "list", true, "SKIPPED the tests of Soft-RoCE: no qemu here"},
		{"vm", "list", true, "ran test -go go -pkg ./a -flag -mode vm -- -run X"}, // it returns the status of the tests
	} {
		cmd := exec.CommandContext(t.Context(), bash, "../scripts/test-rxe.sh", tool, "./a", "-flag", "--", "-run", "X")
		cmd.Env = append(os.Environ(), "GO=go", "REPORT=env", "PLACE="+c.place, "REQUIRED="+c.required)
		out, err := cmd.Output()
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		if last := lines[len(lines)-1]; last != c.last || (err != nil) != c.fails {
			t.Errorf("%s, required %q: got last line %q and error %v, want %q and failure %v", c.place, c.required, last, err, c.last, c.fails)
		}
	}
}
