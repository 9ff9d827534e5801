package bench

import (
	"errors"
	"fmt"
	"math/bits"
	"os"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/tryst-rdma/tryst/status"
)

// pinProcess keeps every thread of this process on one processor, and those that begin
// later, until release is called; a process that is started meanwhile begins there.
// Go's scheduler goes on with as many processors of its own as it has.
func pinProcess(cpu int) (release func() error, err error) {
	var before, only unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return nil, pinFailed(cpu, err)
	}
	keepProcs(runtime.GOMAXPROCS(0))
	only.Set(cpu)
	if err := pinThreads(&only); err != nil {
		return nil, pinFailed(cpu, errors.Join(err, pinThreads(&before)))
	}
	return func() error { return pinThreads(&before) }, nil
}

// keepProcs sets GOMAXPROCS, which else follows the processors that this process may use
// (sched_setaffinity(2)), so that nobody would spin on one.
func keepProcs(n int) { runtime.GOMAXPROCS(n) }

// pinThreads moves all threads. One that begins meanwhile may have been begun by one that
// had not been moved, so it looks until there is no new one.
func pinThreads(to *unix.CPUSet) error {
	moved := make(map[int]bool)
	for again := true; again; {
		again = false
		tasks, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return err
		}
		for _, task := range tasks {
			tid, err := strconv.Atoi(task.Name())
			if err != nil || moved[tid] {
				continue
			}
			if err := unix.SchedSetaffinity(tid, to); err != nil && !errors.Is(err, unix.ESRCH) { // it has ended
				return fmt.Errorf("sched_setaffinity: %w", err)
			}
			moved[tid], again = true, true
		}
	}
	return nil
}

// pinChild moves a process of one thread.
func pinChild(p *os.Process, cpu int) error {
	var only unix.CPUSet
	only.Set(cpu)
	if err := unix.SchedSetaffinity(p.Pid, &only); err != nil && !errors.Is(err, unix.ESRCH) { // it has ended, and says why
		return pinFailed(cpu, err)
	}
	return nil
}

// twoProcessors are the first two that this process may use.
func twoProcessors() (cpus [2]int, err error) {
	var may unix.CPUSet
	if err := unix.SchedGetaffinity(0, &may); err != nil {
		return cpus, status.Errorf(status.Internal, "which processors this process may use: %w", err)
	}
	n := 0
	for cpu := 0; n < len(cpus) && cpu < len(may)*bits.UintSize; cpu++ {
		if may.IsSet(cpu) {
			cpus[n] = cpu
			n++
		}
	}
	if n < len(cpus) {
		return cpus, status.Errorf(status.FailedPrecondition, "--pin needs two processors, one for each process, and this process may use %d", n)
	}
	return cpus, nil
}

func pinFailed(cpu int, err error) error {
	return status.Errorf(status.FailedPrecondition, "--pin: keeping a process on processor %d: %w", cpu, err)
}
