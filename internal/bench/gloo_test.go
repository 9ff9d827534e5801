package bench

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// What the processes of speakAsGloo do with these sizes.
const (
	failingBytes   = 12 // rank 1 answers with an error
	forgetfulBytes = 16 // rank 1 has one round too few
)

// speakAsGloo answers as peers/gloo.py does: each round takes so many milliseconds as the rank, and one.
func speakAsGloo(in io.Reader, out io.Writer) {
	lines, answers := json.NewDecoder(in), json.NewEncoder(out)
	var s setup
	if err := lines.Decode(&s); err != nil || s.Reduce == nil {
		fmt.Fprintln(os.Stderr, "the setup is that of no all-reduce", err)
		os.Exit(1)
	}
	rank := s.Reduce.Rank
	_ = answers.Encode(hello{Bare: &bareAddresses{Version: "torch 9.8.7, gloo"}})
	var c command
	for lines.Decode(&c) == nil {
		var st state
		for range c.Reduce.Rounds {
			st.Rounds = append(st.Rounds, time.Duration(rank+1)*time.Millisecond)
		}
		switch {
		case rank == 1 && c.Reduce.Bytes == failingBytes:
			st = state{Error: "RuntimeError: broken"}
		case rank == 1 && c.Reduce.Bytes == forgetfulBytes:
			st.Rounds = st.Rounds[1:]
		}
		_ = answers.Encode(st)
	}
}

// pythonThat is a directory like that of make bench-peers, whose Python is a shell script.
func pythonThat(t *testing.T, script string) string {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "bin", "python")
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte("#!/bin/sh\n"+script+"\n"), 0o755)); err != nil {
		t.Fatal(err)
	}
	return dir
}

func pythonAsGloo(t *testing.T) string {
	t.Helper()
	return pythonThat(t, fmt.Sprintf("%s=gloo exec '%s'", peerVariable, os.Args[0]))
}

const noTorch = "echo \"ModuleNotFoundError: No module named 'torch'\" >&2; exit 1"

func TestAllReduceBesideGloo(t *testing.T) {
	var said []string
	o := besidePrograms(t, pythonAsGloo(t), &said, "allreduce-shm", "allreduce-tcp")
	o.Sizes = []int64{100_002}
	rows, err := Run(t.Context(), o)
	if err != nil {
		t.Fatalf("%v\n%s", err, strings.Join(said, "\n"))
	}
	if len(rows) != 2*2 {
		t.Errorf("%d rows", len(rows))
	}
	for _, r := range rows {
		if r.file != peersFile || r.Count < minRounds || r.Size != 100_000 || r.GBytesPerSecond != 0 || r.Baseline != Gloo || r.Better != Lower || r.Target != 0 || !r.OK {
			t.Errorf("row %+v", r)
		}
		if r.itself && (r.P50 < 4000*0.98 || r.P50 > 4000*1.02) {
			t.Errorf("a round of the other side takes %v us, want the 4 ms of its slowest member", r.P50)
		}
		if want := r.P50 / 4000; !r.itself && (r.Ratio < want/10 || r.Ratio > want*10) {
			t.Errorf("the ratio of times is %v, of the medians %v", r.Ratio, want)
		}
	}
	if text := strings.Join(said, "\n"); strings.Count(text, "torch 9.8.7, gloo: torch.distributed.all_reduce in place") != 2 {
		t.Errorf("it does not say how each was run:\n%s", text)
	}
}

// TestAllReduceWithoutTorch: ours are measured alone, with a line that says what is missing.
func TestAllReduceWithoutTorch(t *testing.T) {
	for _, c := range []struct{ name, dir, want string }{
		{"a Python without torch", pythonThat(t, noTorch), "/bin/python: rank 0: the second process ended: ModuleNotFoundError: No module named 'torch'; it needs a Python that has torch: "},
		{"a Python that speaks something else", pythonThat(t, `read setup; echo '{}'; read command`), "/bin/python does not say which version it has; "},
		{"no Python", t.TempDir(), "no such file or directory; "},
		{"no directory", "", "no Python is named; it needs a Python that has torch: build/peers/bin/pip install torch, or --torch-python PATH"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var said []string
			rows, err := Run(t.Context(), besidePrograms(t, c.dir, &said, "allreduce-tcp"))
			if text := strings.Join(said, "\n"); err != nil || len(rows) != 1 || !strings.Contains(text, "allreduce-tcp: gloo is left out: ") || !strings.Contains(text, c.want) {
				t.Fatalf("%d rows, %v; it said\n%s", len(rows), err, text)
			}
			if r := rows[0]; r.Baseline != None || r.Ratio != 0 || r.P50 <= 0 || r.Size != 100_000 || r.Count < minRounds || !r.OK || r.Provider == "" {
				t.Errorf("row %+v", r)
			}
		})
	}
}

// TestTorchPython: the Python that is named comes before that of the directory.
func TestTorchPython(t *testing.T) {
	var said []string
	o := besidePrograms(t, pythonThat(t, noTorch), &said, "allreduce-tcp")
	o.TorchPython = filepath.Join(pythonAsGloo(t), "bin", "python")
	if rows, err := Run(t.Context(), o); err != nil || len(rows) != 2 {
		t.Errorf("%d rows, %v; it said\n%s", len(rows), err, strings.Join(said, "\n"))
	}
}

// fakeTorch is a module with the calls of torch that gloo.py makes. Its sums are what SUM has.
const fakeTorch = `
float32 = "float32"
__version__ = "1.2.3"

class Tensor:
    def __init__(self, length, value):
        self.length, self.value = length, value
    def __eq__(self, value):
        return Tensor(self.length, self.value == value)
    def all(self):
        return self.value
    def zero_(self):
        self.value = 0
        return self

def full(shape, value, dtype):
    assert dtype == float32
    return Tensor(shape[0], value)
`

const fakeDistributed = `
import os

group = None

def FileStore(path, members):
    assert not os.path.exists(path) and os.path.isdir(os.path.dirname(path))
    return members

def is_initialized():
    return group is not None

def init_process_group(backend, store, rank, world_size, timeout):
    global group
    assert backend == "gloo" and group is None and store == world_size == 4
    assert os.environ["GLOO_SOCKET_IFNAME"].startswith("lo")
    print("[Gloo] Rank", rank, "is connected")
    group = rank

def barrier():
    assert group is not None

def all_reduce(t):
    t.value = {group + 1: SUM, 0: 0}[t.value]
`

// TestProgramOfGloo runs peers/gloo.py over a module in torch's place.
func TestProgramOfGloo(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("python3 is not installed")
	}
	run := func(sum string) ([]Row, string) {
		dir := pythonThat(t, "")
		for path, text := range map[string]string{
			"torch/__init__.py":    fakeTorch,
			"torch/distributed.py": fakeDistributed + "SUM = " + sum + "\n",
			"bin/python":           fmt.Sprintf("#!/bin/sh\nPYTHONDONTWRITEBYTECODE=1 PYTHONPATH=%s exec %s \"$@\"\n", dir, python),
		} {
			path = filepath.Join(dir, path)
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o755)); err != nil {
				t.Fatal(err)
			}
		}
		var said []string
		rows, err := Run(t.Context(), besidePrograms(t, dir, &said, "allreduce-tcp"))
		if err != nil {
			t.Fatalf("%v\n%s", err, strings.Join(said, "\n"))
		}
		return rows, strings.Join(said, "\n")
	}
	rows, said := run("10")
	if len(rows) != 2 || !strings.Contains(said, "torch 1.2.3, gloo: torch.distributed.all_reduce in place") {
		t.Errorf("%d rows; it said\n%s", len(rows), said)
	}
	for _, r := range rows {
		if r.Count < minRounds || r.P50 <= 0 || r.Baseline != Gloo {
			t.Errorf("row %+v", r)
		}
	}
	if rows, said := run("11"); len(rows) != 1 || !strings.Contains(said, "gloo is left out: rank 0: the second process: RuntimeError: the sum of 4 bytes is wrong") {
		t.Errorf("%d rows; it said\n%s", len(rows), said)
	}
}
