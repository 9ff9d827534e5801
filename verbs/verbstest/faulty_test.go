package verbstest

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// bugs lists the bugs, each with cases that must fail because of it.
var bugs = []struct {
	bug   bug
	cases []string
}{
	{anyTransition, []string{"State/WrongTransitions"}},
	{flushesSignaledOnly, []string{"Failure/AllOutstandingAreFlushed", "Failure/PostedInErrIsFlushed"}},
	{receivesNotFlushed, []string{"Failure/AllOutstandingAreFlushed", "Failure/WrongRKey"}},
	{respondsAfterClose, []string{"Close/StopsPeerWrites", "Failure/DestroyedPeer"}},
	{overcountsPosted, []string{"Queue/SendQueueFull", "Queue/SendQueueFullInABatch"}},
	{anyLocalKey, []string{"Failure/WrongLKey", "Failure/LocalPastTheEnd"}},
	{unlimitedRetries, []string{"Failure/DestroyedPeer", "Failure/SentIntoInitIsLost"}},
	{omitsAccessNAK, []string{"Failure/WrongRKey"}},
	{losesWakeUps, []string{"Event/EventBeforeWait"}},
	{lateContent, []string{"Data/ContentBeforeImm"}},
	{emptyTakesReceive, []string{"Data/EmptyWriteNeedsNoReceiveNorKey"}},
	{ignoresRights, []string{"Failure/ReadOnlyRegion", "Failure/UnreadableRegion"}},
	{ignoresQPRights, []string{"Failure/QueuePairWithoutWriteAccess"}},
	{anyDomain, []string{"Failure/RKeyOfAnotherDomain"}},
	{anyPSN, []string{"Failure/WrongPSN"}},
	{completesUnsignaled, []string{"Queue/SelectiveSignalling"}},
	{truncatesMessages, []string{"Failure/LongerThanTheReceive"}},
	{swapsImm, []string{"Data/SendWithImm", "Data/WriteWithImm"}},
	{anyCloseOrder, []string{"Close/WrongOrderIsBusy"}},
	{windowKeyOutlivesClose, []string{"Memory/WindowClose"}},
	{inlineLater, []string{"Data/Inline"}},
	{waitOutlivesClose, []string{"Event/WaitEndsWithClose"}},
	{unlimitedRNRRetries, []string{"Failure/NoReceive"}},
	{ignoresFence, []string{"Data/FenceWaitsForReads"}},
	{silentPorts, []string{"Event/PortDownAndUp"}},
	{ignoresSolicited, []string{"Event/SolicitedOnly"}},
}

// bugEnv is the environment variable by which TestSuiteFindsBugs makes TestFaulty, in a
// process of its own, run the suite on a fabric with a bug.
const bugEnv = "VERBSTEST_BUG"

func TestFaulty(t *testing.T) {
	m := bug(os.Getenv(bugEnv))
	if m == "" {
		return // run by TestSuiteFindsBugs only
	}
	Run(t, memoryEnv(Options{Seed: 1, Latency: 10 * time.Microsecond}, true, m))
}

// TestSuiteFindsBugs: each bug makes its cases fail.
func TestSuiteFindsBugs(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range bugs {
		t.Run(string(m.bug), func(t *testing.T) {
			for _, name := range m.cases {
				only := "^TestFaulty$/^" + strings.ReplaceAll(name, "/", "$/^") + "$"
				cmd := exec.CommandContext(t.Context(), self, "-test.run="+only, "-test.v", "-test.timeout=10m")
				cmd.Env = append(os.Environ(), bugEnv+"="+string(m.bug))
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
	return "without a message"
}
