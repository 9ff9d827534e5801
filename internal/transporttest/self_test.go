package transporttest

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/tryst-rdma/tryst/cluster"
)

func referenceSuite(f fault) Suite {
	return Suite{
		New:     func(t testing.TB, tasks []cluster.Task) Cluster { return newReference(t, tasks, f) },
		MaxSize: 64 * mib,
		Virtual: true,
	}
}

// TestReference: the suite passes over a correct transport.
func TestReference(t *testing.T) { Run(t, referenceSuite("")) }

// TestReferenceBlocking: the suite passes with blocking receives, too.
func TestReferenceBlocking(t *testing.T) {
	s := referenceSuite("")
	s.Blocking = true
	Run(t, s)
}

// faultEnv is the environment variable that makes TestFaulty, in a process of its own, run the
// suite over a transport with a fault.
const faultEnv = "TRANSPORTTEST_FAULT"

func TestFaulty(t *testing.T) {
	f := fault(os.Getenv(faultEnv))
	if f == "" {
		return // TestSuiteFindsFaults starts it
	}
	Run(t, referenceSuite(f))
}

// TestSuiteFindsFaults: each fault makes its cases fail.
func TestSuiteFindsFaults(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range faults {
		t.Run(string(f.fault), func(t *testing.T) {
			for _, name := range f.cases {
				only := "^TestFaulty$/^" + strings.ReplaceAll(name, "/", "$/^") + "$"
				cmd := exec.CommandContext(t.Context(), self, "-test.run="+only, "-test.v", "-test.timeout=10m")
				cmd.Env = append(os.Environ(), faultEnv+"="+string(f.fault))
				out, err := cmd.CombinedOutput()
				if err == nil || !strings.Contains(string(out), "--- FAIL: TestFaulty/"+name) {
					t.Errorf("%s does not fail (%v):\n%s", name, err, out)
				} else {
					t.Logf("%s fails: %s", name, firstComplaint(string(out)))
				}
			}
		})
	}
}

// firstComplaint returns the first line that a failed test printed.
func firstComplaint(out string) string {
	for line := range strings.Lines(out) {
		if strings.Contains(line, ".go:") && !strings.Contains(line, "goroutine") {
			return strings.TrimSpace(line)
		}
	}
	return "without a word"
}
