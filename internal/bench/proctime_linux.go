package bench

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// clockTick is the unit of times in /proc: USER_HZ is 100 on all architectures that Go runs on.
const clockTick = 10 * time.Millisecond

// processTime returns the processor time that a process has used, with its threads that have ended
// (proc_pid_stat(5), utime and stime).
func processTime(pid int) (time.Duration, bool) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, false
	}
	// The fields after the name, which is in parentheses and may have any character.
	fields := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	const utime, stime = 11, 12
	if len(fields) <= stime {
		return 0, false
	}
	user, err1 := strconv.ParseInt(fields[utime], 10, 64)
	system, err2 := strconv.ParseInt(fields[stime], 10, 64)
	return time.Duration(user+system) * clockTick, err1 == nil && err2 == nil
}
