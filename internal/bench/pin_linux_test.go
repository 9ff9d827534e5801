package bench

import (
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tryst-rdma/tryst/status"
)

// TestPinnedProcessKeepsItsProcessor: all threads of a process that is pinned, those that
// begin later, and a process that it starts are on the one processor, though Go goes on
// with as many of its own; then they are where they were.
func TestPinnedProcessKeepsItsProcessor(t *testing.T) {
	cpus, err := twoProcessors()
	if status.CodeOf(err) == status.FailedPrecondition {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	affinity := func(tid int) (set unix.CPUSet) {
		t.Helper()
		if err := unix.SchedGetaffinity(tid, &set); err != nil {
			t.Fatal(err)
		}
		return set
	}
	before, procs := affinity(0), runtime.GOMAXPROCS(0)
	defer runtime.SetDefaultGOMAXPROCS()
	defer runtime.GOMAXPROCS(procs)
	release, err := pinProcess(cpus[1])
	if err != nil {
		t.Fatal(err)
	}
	var only unix.CPUSet
	only.Set(cpus[1])
	later := make(chan int)
	go func() {
		runtime.LockOSThread() // and ends its thread
		later <- unix.Gettid()
		<-later
	}()
	if set := affinity(<-later); set != only {
		t.Errorf("a thread that began later may run on %d processors", set.Count())
	}
	later <- 0
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		var set unix.CPUSet
		tid, _ := strconv.Atoi(task.Name())
		if err := unix.SchedGetaffinity(tid, &set); err == nil && set != only {
			t.Errorf("thread %d may run on %d processors", tid, set.Count())
		}
	}
	if n := runtime.GOMAXPROCS(0); n != procs {
		t.Errorf("GOMAXPROCS is %d, want %d", n, procs)
	}
	out, err := exec.CommandContext(t.Context(), "grep", "Cpus_allowed_list", "/proc/self/status").Output()
	if want := strconv.Itoa(cpus[1]); err != nil || strings.TrimSpace(strings.TrimPrefix(string(out), "Cpus_allowed_list:")) != want {
		t.Errorf("a child has %q and %v, want %s", out, err, want)
	}
	if err := release(); err != nil {
		t.Fatal(err)
	}
	if set := affinity(0); set != before {
		t.Errorf("it may run on %d processors after it, want %d", set.Count(), before.Count())
	}
}

// TestPinSaysWhatItNeeds, where there is only one processor.
func TestPinSaysWhatItNeeds(t *testing.T) {
	cpus, err := twoProcessors()
	if err != nil {
		if status.CodeOf(err) != status.FailedPrecondition || !strings.Contains(err.Error(), "may use 1") {
			t.Error(err)
		}
		return // that is where we are
	}
	procs := runtime.GOMAXPROCS(0)
	defer runtime.SetDefaultGOMAXPROCS()
	defer runtime.GOMAXPROCS(procs)
	release, err := pinProcess(cpus[0])
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := release(); err != nil {
			t.Error(err)
		}
	}()
	if _, err := twoProcessors(); status.CodeOf(err) != status.FailedPrecondition || !strings.Contains(err.Error(), "may use 1") {
		t.Errorf("on one processor: %v", err)
	}
}
