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

// Env is what a provider's test gives to Run.
type Env struct {
	// Ends returns the two devices between which the cases work; they may be
	// one. It is called at the beginning of each case. What it needs it gives
	// back when t ends.
	Ends func(t testing.TB) (a, b End)
	// Path has what the cases do not choose themselves, for both directions:
	// MTU (0 for the smaller of what the ports have active), TrafficClass,
	// ServiceLevel, PKeyIndex, Timeout (0 for 14, 67 ms).
	Path verbs.Path
	// Memory returns memory that can be registered, of that many bytes, all
	// zero, until t ends. Nil for the Go heap, where DeviceInfo.GoMemory is set.
	Memory func(t testing.TB, size int) []byte
	// TimeScale multiplies every wait: 1 on a real machine, which 0 means too; 40
	// in an emulated one.
	TimeScale int
	// Groups are those that run; nil for all.
	Groups []string
	// Sizes are lengths of messages in Data, beside those of the suite.
	Sizes []int
	// Virtual runs each case on virtual time (testing/synctest).
	Virtual bool
	// Unsupported says what the provider cannot do, with the reason; where the ends
	// have two providers, what one of them cannot, and Windows if b's cannot. The cases that
	// need it are skipped with it. That what it claims to have is not among
	// them, and the reverse, is tested.
	Unsupported map[Feature]string
	// SetPort takes a's port down, or up again. Needed unless PortEvents is
	// lacking.
	SetPort func(t testing.TB, a End, up bool)
	// KernelCounts, when not nil, counts the objects that are open on an end's
	// device by other means than the provider's: the kernel's count.
	KernelCounts func(t testing.TB, e End) verbs.Counts
}

// End is one device under test.
type End struct {
	Provider verbs.Provider
	Device   string
	Port     uint8
	GIDIndex uint8
}

// Feature is what not every provider has.
type Feature string

// The features that can be lacking.
const (
	Atomics     Feature = "atomics"           // OpCompareSwap and OpFetchAdd
	Reads       Feature = "reads"             // OpRead
	Inline      Feature = "inline"            // SendWR.Inline
	Windows     Feature = "windows"           // BindWindow, of the second end
	SelfConnect Feature = "to itself"         // a queue pair connected to itself
	PortEvents  Feature = "port events"       // EventPortDown and EventPortActive, and a way to cause them
	QPEvents    Feature = "queue pair events" // EventQPAccess or EventQPRequest when a peer's request is refused
	MaxRegion   Feature = "limit of regions"  // a Limits.MRSize that is small enough to be exceeded in a test
)

// testCase is one behaviour.
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

// Run runs the suite, each case as a subtest of its own. After each one all
// objects are closed, in order, and the device's counts are zero.
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
						if reason, lacks := env.Unsupported[f]; lacks {
							t.Skipf("the provider lacks %s: %s", f, reason)
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
	t.Cleanup(func() { // after the objects are closed
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

// The suite's own numbers. All waits are multiplied by Env.TimeScale.
const (
	// caseTime ends a case that hangs.
	caseTime = time.Minute
	// soon is how long a case waits for what has to happen at once.
	soon = 10 * time.Second
	// quiet is how long a case looks whether nothing happens.
	quiet = 50 * time.Millisecond
	// defaultTimeout is 67 ms.
	defaultTimeout = 14
	// memorySize is what each end registers.
	memorySize = 1 << 20
	// wakeUps is how many round trips must be without a lost wake-up.
	wakeUps = 1000
)

// lacks says whether a feature is among those that are not expected.
func (w *world) unsupported(f Feature) bool {
	_, lacks := w.env.Unsupported[f]
	return lacks
}

// words fails the case unless an error says all of that.
func (w *world) errorContains(err error, want ...string) {
	w.Helper()
	for _, s := range want {
		if err == nil || !strings.Contains(err.Error(), s) {
			w.Errorf("the error does not tell %q: %v", s, err)
		}
	}
}
