package verbstest

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// mistakes lists what is planted, each with cases that must fail by it.
var mistakes = []struct {
	mistake mistake
	cases   []string
}{
	{anyStep, []string{"State/WrongStepsInWords"}},
	{flushesSignalled, []string{"Failure/EverythingPostedIsFlushed", "Failure/PostedToABrokenOneIsFlushed"}},
	{keepsReceives, []string{"Failure/EverythingPostedIsFlushed", "Failure/WrongRKey"}},
	{closedLives, []string{"Close/IsAFence", "Failure/DestroyedPeer"}},
	{countsTooMany, []string{"Queue/SendQueueFull", "Queue/SendQueueFullInABatch"}},
	{anyLocalKey, []string{"Failure/WrongLKey", "Failure/LocalPastTheEnd"}},
	{neverGivesUp, []string{"Failure/DestroyedPeer", "Failure/SentIntoInitIsLost"}},
	{toleratesAccess, []string{"Failure/WrongRKey"}},
	{losesWakeUps, []string{"Event/EventBeforeTheWaitIsKept"}},
	{lateContent, []string{"Data/ContentIsThereBeforeItsImm"}},
	{emptyTakesReceive, []string{"Data/EmptyWriteTakesNoReceiveAndNoKey"}},
	{ignoresRights, []string{"Failure/ReadOnlyRegion", "Failure/UnreadableRegion"}},
	{ignoresQPRights, []string{"Failure/QueuePairForbidsWrites"}},
	{anyDomain, []string{"Failure/RKeyOfAnotherDomain"}},
	{anyPSN, []string{"Failure/WrongPSN"}},
	{completesAll, []string{"Queue/SelectiveSignalling"}},
	{cutsLong, []string{"Failure/LongerThanTheReceive"}},
	{swapsImm, []string{"Data/SendWithImm", "Data/WriteWithImm"}},
	{anyCloseOrder, []string{"Close/WrongOrderIsBusy"}},
	{windowSurvives, []string{"Memory/WindowDies"}},
	{inlineLater, []string{"Data/Inline"}},
	{waitOutlivesClose, []string{"Event/WaitEndsWithClose"}},
	{waitsForReceives, []string{"Failure/NoReceive"}},
	{ignoresFence, []string{"Data/FenceWaitsForReads"}},
	{silentPorts, []string{"Event/PortDownAndUp"}},
	{ignoresSolicited, []string{"Event/SolicitedOnly"}},
}

// mistakeEnv makes TestFaulty, in a process of its own, run the suite over a
// fabric with that mistake.
const mistakeEnv = "VERBSTEST_MISTAKE"

func TestFaulty(t *testing.T) {
	m := mistake(os.Getenv(mistakeEnv))
	if m == "" {
		return // TestSuiteFindsMistakes starts it
	}
	Run(t, memoryEnv(Options{Seed: 1, Latency: 10 * time.Microsecond}, true, m))
}

// TestSuiteFindsMistakes: each planted mistake fails the cases that are about it.
func TestSuiteFindsMistakes(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mistakes {
		t.Run(string(m.mistake), func(t *testing.T) {
			for _, name := range m.cases {
				only := "^TestFaulty$/^" + strings.ReplaceAll(name, "/", "$/^") + "$"
				cmd := exec.CommandContext(t.Context(), self, "-test.run="+only, "-test.v", "-test.timeout=1m")
				cmd.Env = append(os.Environ(), mistakeEnv+"="+string(m.mistake))
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

// firstComplaint is the first line that a failed test printed.
func firstComplaint(out string) string {
	for line := range strings.Lines(out) {
		if strings.Contains(line, ".go:") && !strings.Contains(line, "goroutine") {
			return strings.TrimSpace(line)
		}
	}
	return "without a word"
}
