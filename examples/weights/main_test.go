package main

import (
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

// commandVariable makes the test binary the command.
const commandVariable = "TRYST_EXAMPLE_WEIGHTS"

func TestMain(m *testing.M) {
	if os.Getenv(commandVariable) != "" {
		main()
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// command returns the example as a user runs it.
func command(t *testing.T, args ...string) *exec.Cmd {
	c := exec.CommandContext(t.Context(), os.Args[0], args...)
	c.Env = append(os.Environ(), commandVariable+"=1")
	return c
}

// TestEachRolloutEndsWithTheLastVersion runs all processes over each route: versions ascend, the killed rollout comes back,
// and the table has what was seen.
func TestEachRolloutEndsWithTheLastVersion(t *testing.T) {
	t.Parallel()
	routes := []string{"", "grpc", "tcp"}
	if runtime.GOOS == "linux" {
		routes = append(routes, "shm")
	}
	for _, route := range routes {
		t.Run("over "+route, func(t *testing.T) {
			t.Parallel()
			var stderr strings.Builder
			c := command(t, "--route", route, "--updates", "8", "--every", "100ms")
			c.Stderr = &stderr
			out, err := c.Output()
			if err != nil { // the trainer may warn of the one that was killed
				t.Fatalf("%v\n%s\n%s", err, out, &stderr)
			}
			for _, want := range []string{
				`(?m)^trainer   version 8: [123]\.\d % of the elements are new$`,
				`(?m)^killed    is started again$`,
				`(?m)^ROLLOUT +VERSIONS +LAST +MEDIAN LAG +BYTES +OVER$`,
				`(?m)^fast +\d+ +8 +\d+\.\d ms +\d+\.\d MB +\S+`,
				`(?m)^slow +\d+ +8 +\d+\.\d ms +\d+\.\d MB +\S+`,
				`(?m)^killed +\d+ +8 +\d+\.\d ms +\d+\.\d MB +\S+`,
			} {
				if !regexp.MustCompile(want).Match(out) {
					t.Errorf("the command printed\n%s\nwant a match of %q", out, want)
				}
			}
			if want := " over " + map[string]string{"": "", "grpc": "grpc", "shm": "verbs", "tcp": "verbs"}[route]; !strings.Contains(string(out), want) {
				t.Errorf("the command printed\n%s\nwant %q", out, want)
			}
		})
	}
}

// TestTheOneThatIsKilledComesBackToTheLastVersion when it was too late for three of them.
func TestTheOneThatIsKilledComesBackToTheLastVersion(t *testing.T) {
	t.Parallel()
	var stderr strings.Builder
	c := command(t, "--route", "grpc", "--updates", "3", "--every", "1ms")
	c.Stderr = &stderr
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, out, &stderr)
	}
	if !regexp.MustCompile(`(?m)^killed    is started again$(.*\n)*killed    version 3 (.*\n)*killed +\d+ +3 `).Match(out) {
		t.Errorf("the command printed\n%s", out)
	}
}

func TestWrongFlagsAreErrors(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"--updates", "1"}, {"--route", "pigeon"}, {"--nonsense"}, {"trainer", "--listen", "nowhere"}} {
		if out, err := command(t, args...).CombinedOutput(); err == nil || !strings.Contains(string(out), "weights: ") {
			t.Errorf("%q: %v\n%s", args, err, out)
		}
	}
}
