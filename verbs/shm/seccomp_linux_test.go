package shm

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"testing"

	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/internal/seccomptest"
)

// TestUnderTheFilterOfContainers: a process under the seccomp filter of a container, without
// capabilities, does all operations with one outside of it, in both directions. The memory is a
// registered memfd. The socket is an abstract one, or one in a directory.
func TestUnderTheFilterOfContainers(t *testing.T) {
	profile := seccomptest.Profile(t)
	filtered := func(cmd *exec.Cmd) { cmd.Env = append(cmd.Env, seccomptest.Variable+"="+profile) }
	for name, o := range map[string]Options{"abstract socket": {}, "directory": {Dir: t.TempDir()}} {
		t.Run(name+"/responder", func(t *testing.T) {
			x := newTestEnd(t, New(o), childMemory)
			c := startChild(t, "echo", o, filtered)
			c.join(x)
			x.exercises(c)
		})
		t.Run(name+"/requester", func(t *testing.T) {
			x := newTestEnd(t, New(o), childMemory)
			for i := range 16 {
				x.recv(verbs.WRID(i), 64*i, 64)
			}
			c, in := startExercise(t, x, o, filtered)
			defer in.Close()
			x.connect(c.offer.Endpoint)
			for range messages {
				if !x.echoOne() {
					t.Fatal("the connection ends before all messages came")
				}
			}
			c.line() // all was right; it closes everything when its input ends
		})
	}
}

// startExercise starts a process that connects to x and does all operations. It closes everything
// and ends when in is closed.
func startExercise(t *testing.T, x *testEnd, o Options, change func(*exec.Cmd)) (c *child, in *os.File) {
	t.Helper()
	r, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := json.NewEncoder(in).Encode(offer{Endpoint: x.endpoint(), Addr: x.mr.Addr(), RKey: x.mr.RKey()}); err != nil {
		t.Fatal(err)
	}
	return startChild(t, "exercise", o, func(cmd *exec.Cmd) {
		change(cmd)
		cmd.Stdin = r
	}), in
}

// TestSuiteUnderTheFilterOfContainers: the suite of all providers passes under the seccomp filter of
// a container.
func TestSuiteUnderTheFilterOfContainers(t *testing.T) {
	profile := seccomptest.Profile(t)
	cmd := exec.Command(os.Args[0], "-test.run=^TestSuite$")
	cmd.Env = seccomptest.Environment(profile)
	if out, err := cmd.CombinedOutput(); err != nil || bytes.Contains(out, []byte("no tests to run")) {
		t.Errorf("%v: %s", err, out)
	}
}
