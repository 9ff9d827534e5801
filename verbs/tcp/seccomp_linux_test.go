package tcp

import (
	"bytes"
	"os"
	"os/exec"
	"testing"

	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/internal/seccomptest"
)

// TestUnderTheFilterOfContainers: a process under the seccomp filter of a container, without
// capabilities, is dialed by one outside of it, which writes, reads and adds in its memory.
func TestUnderTheFilterOfContainers(t *testing.T) {
	t.Setenv(seccomptest.Variable, seccomptest.Profile(t)) // for the child
	s := newSide(t, Options{}, 1<<20)
	_, peer := s.child()
	const half = 1 << 19
	for i := range s.mem[:half] {
		s.mem[i] = byte(i * 7 >> 3)
	}
	s.post(s.writeTo(peer, 1, half))
	s.expect(1, verbs.StatusOK)
	read := s.writeTo(peer, 2, half)
	read.Op, read.SGL = verbs.OpRead, []verbs.SGE{s.sge(half, half)}
	s.post(read)
	s.expect(2, verbs.StatusOK)
	if string(s.mem[:half]) != string(s.mem[half:]) {
		t.Error("what was written is not what was read")
	}
	add := s.writeTo(peer, 3, 8)
	add.Op, add.Add, add.SGL = verbs.OpFetchAdd, 5, []verbs.SGE{s.sge(half, 8)}
	s.post(add)
	s.expect(3, verbs.StatusOK)
	if string(s.mem[:8]) != string(s.mem[half:half+8]) {
		t.Error("an atomic returns another value than was written")
	}
}

// TestSuitesUnderTheFilterOfContainers: the suite of all providers passes under the seccomp filter of
// a container, in plain and under TLS.
func TestSuitesUnderTheFilterOfContainers(t *testing.T) {
	profile := seccomptest.Profile(t)
	names := []string{"TestSuite", "TestSuiteTLS"}
	if testing.Short() {
		names = names[:1]
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(os.Args[0], "-test.run=^"+name+"$")
			cmd.Env = seccomptest.Environment(profile)
			if out, err := cmd.CombinedOutput(); err != nil || bytes.Contains(out, []byte("no tests to run")) {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}
