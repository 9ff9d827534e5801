package regmem

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// ReadMemlock reads how much memory this process may lock.
func ReadMemlock() (Memlock, error) {
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &r); err != nil {
		return Memlock{}, os.NewSyscallError("getrlimit", err)
	}
	l := Memlock{Limit: r.Cur, Hard: r.Max} // RLIM_INFINITY is NoMemlock
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return Memlock{}, err
	}
	capEff, pinned, err := parseStatus(text)
	if err != nil {
		return Memlock{}, fmt.Errorf("/proc/self/status: %w", err)
	}
	l.Locked = pinned
	// A kernel without user namespaces has no such file, and only the initial namespace.
	uidMap, err := os.ReadFile("/proc/self/uid_map")
	l.Exempt = capEff&(1<<capIPCLock) != 0 && (err != nil || initialNamespace(uidMap))
	return l, nil
}
