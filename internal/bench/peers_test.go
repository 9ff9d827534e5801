package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// programs is a directory like that of make bench-peers, whose programs behave as the real
// ones: a ucx_perftest that prints what it is given, and processes that speak as NIXL's.
func programs(t *testing.T, ucxPrints string) string {
	t.Helper()
	dir := t.TempDir()
	write := func(path, text string, mode os.FileMode) {
		t.Helper()
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	libucx := "lib/python3.11/site-packages/libucx/"
	// A server ends with its client. The first client comes before its server listens.
	write(libucx+"bin/ucx_perftest", fmt.Sprintf(`#!/bin/sh
if [ "$1" != 127.0.0.1 ]; then
	while [ ! -e %[1]s/served ]; do sleep 0.01; done
	exec rm %[1]s/served
fi
if [ ! -e %[1]s/tried ]; then
	>%[1]s/tried
	echo "connect() failed: Connection refused"
	exit 255
fi
>%[1]s/served
cat <<'END'
%[2]s
END
`, dir, ucxPrints), 0o755)
	write(libucx+"UCX_WHEEL_VERSION.txt", "9.8.7\n", 0o644)
	write("bin/python", fmt.Sprintf("#!/bin/sh\n%s=foreign exec '%s'\n", peerVariable, os.Args[0]), 0o755)
	return dir
}

const ucxOutput = "iterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr\n20,2.500,3.000,4.000,58.02,58.02,760,760"

// besidePrograms are the options of routes beside such programs.
func besidePrograms(t *testing.T, dir string, said *[]string, only ...string) Options {
	o := routes(t, only...)
	o.Routes, o.Peers, o.Sizes = false, dir, []int64{100_000}
	o.Progress = func(s string) { *said = append(*said, s) }
	return o
}

func TestBesidePrograms(t *testing.T) {
	var said []string
	rows, err := Run(t.Context(), besidePrograms(t, programs(t, ucxOutput), &said))
	if err != nil {
		t.Fatalf("%v\n%s", err, strings.Join(said, "\n"))
	}
	if len(rows) != 4*2*2 { // a small and a large receive, and the program's own rows
		t.Errorf("%d rows", len(rows))
	}
	for _, r := range rows {
		if r.file != peersFile || r.Count < 1 || r.Ratio <= 0 || r.Target != 0 || !r.OK || r.itself != (r.Provider == "") {
			t.Errorf("row %+v", r)
		}
		if r.itself && r.Baseline == UCXTag {
			if want := map[bool]float64{true: 5, false: 0}[r.Size == smallSize]; r.P50 < want*0.98 || r.P50 > want*1.02 {
				t.Errorf("the median of %d bytes is %v us, want twice the 2.5 of one way, and none of the bandwidth", r.Size, r.P50)
			}
			if seconds := r.Seconds / float64(r.Count); r.Size != smallSize && (seconds < 3.9e-6 || seconds > 4.1e-6) {
				t.Errorf("an operation takes %v s, want the 4 us of overall_lat", seconds)
			}
		}
	}
	if text := strings.Join(said, "\n"); !strings.Contains(text, "UCX 9.8.7: ucx_perftest -t tag_bw") || !strings.Contains(text, "UCX_TLS=shm") || !strings.Contains(text, "UCX_TLS=tcp") {
		t.Errorf("it does not say how each was run:\n%s", text)
	}
}

// TestProgramThatDoesNotRun is left out with its reason, and the others are measured.
func TestProgramThatDoesNotRun(t *testing.T) {
	var said []string
	dir := programs(t, "no table")
	rows, err := Run(t.Context(), besidePrograms(t, dir, &said, "peer-ucx-tcp", "peer-nixl-tcp"))
	text := strings.Join(said, "\n")
	if err != nil || len(rows) != 2*2 || !strings.Contains(text, "peer-ucx-tcp: left out: ucx_perftest printed no 50.0_percentile_lat") {
		t.Errorf("%d rows, %v; it said\n%s", len(rows), err, text)
	}
	if err := os.WriteFile(filepath.Join(dir, "bin", "python"), []byte("#!/bin/sh\necho 'ModuleNotFoundError: no NIXL' >&2; exit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	said = nil
	rows, err = Run(t.Context(), besidePrograms(t, dir, &said, "peer-nixl-tcp"))
	if text := strings.Join(said, "\n"); err != nil || len(rows) > 0 || !strings.Contains(text, "left out: the second process ended: ModuleNotFoundError: no NIXL") {
		t.Errorf("%d rows, %v; it said\n%s", len(rows), err, text)
	}
	said = nil
	rows, err = Run(t.Context(), besidePrograms(t, t.TempDir(), &said, "peer-ucx-tcp"))
	if text := strings.Join(said, "\n"); err != nil || len(rows) > 0 || !strings.Contains(text, "left out: there is no ucx_perftest in ") {
		t.Errorf("%d rows, %v; it said\n%s", len(rows), err, text)
	}
}
