package regmem

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// ReadMemlock asks the system what this process may lock.
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
	// Without user namespaces in the kernel there is no such file, and one
	// namespace.
	uidMap, err := os.ReadFile("/proc/self/uid_map")
	l.Exempt = capEff&(1<<capIPCLock) != 0 && (err != nil || firstNamespace(uidMap))
	return l, nil
}
