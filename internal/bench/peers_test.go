package bench

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tryst-rdma/tryst/server"
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
	o.Client.RDMA.Poll = server.PollAdaptive
	return o
}

// foreignRows are those of a program over a route under one poll: a small receive, a request and its
// reply, a large receive, and the program's own rows.
const foreignRows = 3 * 2

func TestBesidePrograms(t *testing.T) {
	var said []string
	rows, err := Run(t.Context(), besidePrograms(t, programs(t, ucxOutput), &said, "peer-ucx-shm", "peer-ucx-tcp", "peer-nixl-shm", "peer-nixl-tcp"))
	if err != nil {
		t.Fatalf("%v\n%s", err, strings.Join(said, "\n"))
	}
	if len(rows) != 4*foreignRows {
		t.Errorf("%d rows", len(rows))
	}
	for _, r := range rows {
		if r.file != peersFile || r.Count < 1 || r.Ratio <= 0 || r.itself != (r.Provider == "") {
			t.Errorf("row %+v", r)
		}
		if want := stepTargets[stepKey{r.Name, r.Size, r.Inflight, r.Baseline}]; !r.itself && r.Target != want {
			t.Errorf("row %+v has a target other than %v", r, want)
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

// TestBothPollsBesideAProgram: by default ours poll adaptively, and then busily.
func TestBothPollsBesideAProgram(t *testing.T) {
	var said []string
	o := besidePrograms(t, programs(t, ucxOutput), &said, "peer-ucx-shm")
	o.Client.RDMA.Poll = ""
	rows, err := Run(t.Context(), o)
	if err != nil || len(rows) != 2*foreignRows {
		t.Fatalf("%d rows, %v\n%s", len(rows), err, strings.Join(said, "\n"))
	}
	for i, r := range rows {
		if busy := strings.HasSuffix(r.Name, "-"+server.PollBusy); busy != (i >= foreignRows) {
			t.Errorf("row %d is %s", i, r.Name)
		}
	}
}

// TestProgramThatDoesNotRun is left out with its reason, and the others are measured.
func TestProgramThatDoesNotRun(t *testing.T) {
	var said []string
	dir := programs(t, "no table")
	rows, err := Run(t.Context(), besidePrograms(t, dir, &said, "peer-ucx-tcp", "peer-nixl-tcp"))
	text := strings.Join(said, "\n")
	if err != nil || len(rows) != foreignRows || !strings.Contains(text, "peer-ucx-tcp: left out: ucx_perftest printed no 50.0_percentile_lat") {
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

// fakeNIXL is a module with the calls of NIXL that nixl.py makes. Its reads end at the second
// look, with what PATTERN has.
const fakeNIXL = `
import ctypes, os

class nixl_agent_config:
    def __init__(self, backends):
        assert backends == []

class nixl_agent:
    def __init__(self, name, config):
        pass
    def create_backend(self, name, options):
        assert name == "UCX"
        assert options == {"ucx_error_handling_mode": "none" if os.environ["UCX_TLS"] == "shm" else "peer"}
    def register_memory(self, descs, kind):
        return descs
    def get_agent_metadata(self):
        return b"\xff\x00 metadata"
    def add_remote_agent(self, metadata):
        assert metadata == b"\xff\x00 metadata"
        return b"server"
    def get_xfer_descs(self, descs, kind):
        return descs
    def initialize_xfer(self, operation, to, source, peer):
        assert (operation, peer) == ("READ", "server") and to[0][1] == source[0][1]
        return {"to": to[0], "looks": 0}
    def transfer(self, handle):
        handle["looks"] = 2
        return "PROC"
    def check_xfer_state(self, handle):
        handle["looks"] -= 1
        if handle["looks"] > 0:
            return "PROC"
        address, size, _ = handle["to"]
        ctypes.memmove(address, (PATTERN * (size // 4 + 1))[:size], size)
        return "DONE"
`

// TestProgramOfNIXL runs peers/nixl.py over a module in NIXL's place: it speaks as the processes
// of the bare baselines do, and checks what it reads.
func TestProgramOfNIXL(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("python3 is not installed")
	}
	run := func(pattern string) ([]Row, string) {
		dir := t.TempDir()
		for path, text := range map[string]string{
			"nixl_cu12/__init__.py":              fakeNIXL + "PATTERN = " + pattern,
			"nixl_cu12-1.2.3.dist-info/METADATA": "Metadata-Version: 2.1\nName: nixl-cu12\nVersion: 1.2.3\n",
			"bin/python":                         fmt.Sprintf("#!/bin/sh\nPYTHONDONTWRITEBYTECODE=1 PYTHONPATH=%s exec %s \"$@\"\n", dir, python),
		} {
			path = filepath.Join(dir, path)
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o755)); err != nil {
				t.Fatal(err)
			}
		}
		var said []string
		rows, err := Run(t.Context(), besidePrograms(t, dir, &said, "peer-nixl-shm", "peer-nixl-tcp"))
		if err != nil {
			t.Fatalf("%v\n%s", err, strings.Join(said, "\n"))
		}
		return rows, strings.Join(said, "\n")
	}
	rows, said := run(`b"\x5a\xc3\x17\xe8"`)
	if len(rows) != 2*foreignRows || !strings.Contains(said, "NIXL 1.2.3 over UCX of unknown version: reads of a registered buffer, UCX_TLS=shm") {
		t.Errorf("%d rows; it said\n%s", len(rows), said)
	}
	for _, r := range rows {
		if r.itself && (r.Count < 1 || r.P50 <= 0 || r.P99 < r.P50) {
			t.Errorf("row %+v", r)
		}
	}
	if rows, said := run(`b"\x5a\xc3\x17\x00"`); len(rows) > 0 || strings.Count(said, "left out: the second process: RuntimeError: 8 bytes arrived with wrong content") != 2 {
		t.Errorf("%d rows; it said\n%s", len(rows), said)
	}
}
