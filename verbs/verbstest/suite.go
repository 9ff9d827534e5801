package verbstest

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tryst-rdma/tryst/verbs"
)

// Env configures Run for a provider.
type Env struct {
	// Ends returns the two devices that the cases connect; they may be the same. It is
	// called at the start of each case, and frees its resources with t.Cleanup.
	Ends func(t testing.TB) (a, b End)
	// Path holds the path parameters that the cases do not choose, for both directions:
	// MTU (0 means the smaller active MTU of the two ports), TrafficClass,
	// ServiceLevel, PKeyIndex, Timeout (0 means code 14, 67 ms). Cases whose peer responds
	// have a Timeout of at least a second: on a busy machine a process may rest that long.
	Path verbs.Path
	// Memory returns zeroed memory of size bytes that can be registered, valid until t
	// ends. Nil means the Go heap, which needs DeviceInfo.GoMemory.
	Memory func(t testing.TB, size int) []byte
	// TimeScale multiplies all waits. 0 means 1; emulated machines need about 40.
	TimeScale int
	// Groups selects the groups of cases by name; nil means all.
	Groups []string
	// Sizes adds lengths of messages in bytes to those of the group Data.
	Sizes []int
	// Virtual runs each case on virtual time, in a bubble of testing/synctest.
	Virtual bool
	// Unsupported maps each feature that the provider does not have to the reason, with
	// which the cases that need it are skipped. If the two ends have different
	// providers, it has the features that either lacks, but Windows only if the second
	// end lacks it. The suite checks Windows and Atomics against DeviceInfo.
	Unsupported map[Feature]string
	// SetPort takes the port of the first end down or up. Required unless PortEvents is
	// in Unsupported.
	SetPort func(t testing.TB, a End, up bool)
	// KernelCounts, when not nil, returns the number of open objects of a device from a
	// source other than the provider: the kernel. It must be the same before and after
	// each case.
	KernelCounts func(t testing.TB, e End) verbs.Counts
}

// End is one device under test.
type End struct {
	Provider verbs.Provider
	Device   string
	Port     uint8
	GIDIndex uint8
}

// Feature is an optional feature of providers.
type Feature string

// The features that Env.Unsupported can name.
const (
	Atomics     Feature = "atomics"           // OpCompareSwap and OpFetchAdd
	Reads       Feature = "reads"             // OpRead
	Inline      Feature = "inline"            // SendWR.Inline
	Windows     Feature = "windows"           // QP.BindWindow
	SelfConnect Feature = "self-connection"   // a queue pair connected to itself
	PortEvents  Feature = "port events"       // EventPortDown and EventPortActive, and a way to cause them (Env.SetPort)
	QPEvents    Feature = "queue pair events" // EventQPAccess or EventQPRequest for a rejected request of the peer
	MaxRegion   Feature = "limit of regions"  // a Limits.MRSize that a test can exceed, at most 1 GiB
)

// testCase checks one behaviour.
type testCase struct {
	name  string
	needs []Feature
	run   func(w *world)
}

func groups() []struct {
	name  string
	cases []testCase
} {
	return []struct {
		name  string
		cases []testCase
	}{
		{"Device", deviceCases()},
		{"State", stateCases()},
		{"Data", dataCases()},
		{"Queue", queueCases()},
		{"Failure", failureCases()},
		{"Event", eventCases()},
		{"Memory", memoryCases()},
		{"Close", closeCases()},
	}
}

// Run runs the suite. Each case is a subtest GROUP/CASE. After each case it closes all
// objects in order and checks that no object of the devices is left.
func Run(t *testing.T, env Env) {
	env.TimeScale = max(env.TimeScale, 1)
	if env.Path.Timeout == 0 {
		env.Path.Timeout = defaultTimeout
	}
	for _, g := range groups() {
		if env.Groups != nil && !slices.Contains(env.Groups, g.name) {
			continue
		}
		t.Run(g.name, func(t *testing.T) {
			for _, c := range g.cases {
				t.Run(c.name, func(t *testing.T) {
					for _, f := range c.needs {
						if reason, ok := env.Unsupported[f]; ok {
							t.Skipf("the provider does not support %s: %s", f, reason)
						}
					}
					if env.Virtual {
						synctest.Test(t, func(t *testing.T) { runCase(t, env, c) })
					} else {
						runCase(t, env, c)
					}
				})
			}
		})
	}
}

func runCase(t *testing.T, env Env, c testCase) {
	ctx, cancel := context.WithTimeout(t.Context(), caseTime*time.Duration(env.TimeScale))
	w := &world{TB: t, env: env, ctx: ctx}
	t.Cleanup(func() { // runs after the objects are closed
		cancel()
		w.running.Wait()
	})
	ends := [2]End{}
	ends[0], ends[1] = env.Ends(t)
	w.nodes[0] = w.open(ends[0])
	w.nodes[1] = w.nodes[0]
	if ends[1] != ends[0] {
		w.nodes[1] = w.open(ends[1])
	}
	c.run(w)
}

// Constants of the suite. Env.TimeScale multiplies all times.
const (
	// caseTime is the time limit of a case.
	caseTime = time.Minute
	// soon is how long a case waits for an event that must occur promptly.
	soon = 10 * time.Second
	// quiet is how long a case checks that an event does not occur.
	quiet = 50 * time.Millisecond
	// defaultTimeout is the code of 67 ms, for Env.Path.Timeout.
	defaultTimeout = 14
	// patientTimeout is the code of 1 s, the least timeout of cases whose peer responds.
	patientTimeout = 18
	// memorySize is the size of each end's memory in bytes.
	memorySize = 1 << 20
	// wakeUps is the number of messages of the cases that look for lost wake-ups.
	wakeUps = 1000
)

// unsupported reports whether the environment lacks a feature.
func (w *world) unsupported(f Feature) bool {
	_, ok := w.env.Unsupported[f]
	return ok
}

// errorContains fails the case unless the error text contains all of want.
func (w *world) errorContains(err error, want ...string) {
	w.Helper()
	for _, s := range want {
		if err == nil || !strings.Contains(err.Error(), s) {
			w.Errorf("the error does not contain %q: %v", s, err)
		}
	}
}
