package regmem

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/verbs"
)

// Memlock is how much memory this process may lock. Registering memory with a device locks
// it (getrlimit(2), RLIMIT_MEMLOCK; mlock(2), "Limits").
type Memlock struct {
	Limit  uint64 // the soft limit in bytes; NoMemlock when there is none
	Hard   uint64 // the hard limit in bytes, up to which the process may raise the soft one
	Locked uint64 // bytes that the process has pinned already
	// Exempt says that the limit does not apply: the process has CAP_IPC_LOCK in the
	// initial user namespace, where the kernel checks it.
	Exempt bool
}

// NoMemlock stands for no limit.
const NoMemlock = math.MaxUint64

// Enough reports whether need more bytes may be locked.
func (l Memlock) Enough(need uint64) bool {
	return l.Exempt || l.Limit == NoMemlock || need <= l.Limit && l.Locked <= l.Limit-need
}

// CheckMemlock checks, before anything is registered, whether the pools may grow to their
// limits with a device. Its error is ResourceExhausted and verbs.ErrMemlock, and names the limit to
// raise. A caller may treat it as a warning: the pools then grow as far as they can. extra
// is the bytes that are locked besides: the messages of channels.
func (o Options) CheckMemlock(device verbs.DeviceInfo, l Memlock, extra uint64) error {
	if device.GoMemory {
		return nil // a software device locks nothing
	}
	if err := o.fill(); err != nil {
		return err
	}
	need := uint64(o.SendLimit) + uint64(o.RecvLimit) + extra
	if l.Enough(need) {
		return nil
	}
	return memlockError(fmt.Sprintf("the registered memory of %s may grow to %d bytes (%d to send, %d to receive, %d for messages)",
		device.Name, need, o.SendLimit, o.RecvLimit, extra), need, l, verbs.ErrMemlock)
}

// registerError wraps the error of mapping and registering size bytes of a pool.
func registerError(device, pool string, size int, err error) error {
	if errors.Is(err, verbs.ErrMemlock) {
		l, lerr := ReadMemlock()
		if lerr != nil {
			l = Memlock{Limit: NoMemlock}
		}
		return memlockError(fmt.Sprintf("%s cannot register %d bytes for the %s pool", device, size, pool), uint64(size), l, err)
	}
	return status.Errorf(status.ResourceExhausted, "%s cannot register %d bytes for the %s pool: %w", device, size, pool, err)
}

// memlockError is the error of an operation (what) that would lock need more bytes than the limit of
// locked memory allows. Its text has the limit, and how to raise it far enough.
func memlockError(what string, need uint64, l Memlock, cause error) error {
	total := l.total(need)
	limit := "the limit of locked memory (RLIMIT_MEMLOCK) is too low"
	if l.Limit != NoMemlock {
		limit = fmt.Sprintf("this process may lock %d (RLIMIT_MEMLOCK), of which %d are taken, and has no CAP_IPC_LOCK", l.Limit, l.Locked)
	}
	if l.Hard != l.Limit && total <= l.Hard {
		limit += fmt.Sprintf("; its hard limit (%s) is enough", bytesOrNone(l.Hard))
	}
	return status.Errorf(status.ResourceExhausted, "%s; %s: %s, or make the pools smaller: %w", what, limit, l.Raise(need), cause)
}

// Raise describes how to let a process lock need bytes more than it has locked.
func (l Memlock) Raise(need uint64) string {
	total := l.total(need)
	return fmt.Sprintf("raise it to %d bytes or more (shell: ulimit -l %d; /etc/security/limits.conf: * - memlock %d; systemd: LimitMEMLOCK=%d; docker: --ulimit memlock=%d:%d)",
		total, total/1024, total/1024, total, total, total)
}

// total is the limit that is needed, in bytes and rounded up to a KiB, the unit of ulimit.
func (l Memlock) total(need uint64) uint64 { return (need + l.Locked + 1023) / 1024 * 1024 }

func bytesOrNone(n uint64) string {
	if n == NoMemlock {
		return "unlimited"
	}
	return strconv.FormatUint(n, 10) + " bytes"
}

// capIPCLock is the capability's number (capabilities(7), <linux/capability.h>).
const capIPCLock = 14

// parseStatus returns the effective capabilities and the pinned bytes of
// /proc/PID/status (proc_pid_status(5)): CapEff in hexadecimal, VmPin in kB.
func parseStatus(text []byte) (capEff, pinned uint64, err error) {
	found := false
	for line := range bytes.Lines(text) {
		name, value, ok := bytes.Cut(line, []byte(":"))
		if !ok {
			continue
		}
		fields := bytes.Fields(value)
		switch {
		case string(name) == "CapEff" && len(fields) == 1:
			if capEff, err = strconv.ParseUint(string(fields[0]), 16, 64); err != nil {
				return 0, 0, fmt.Errorf("CapEff: %w", err)
			}
			found = true
		case string(name) == "VmPin" && len(fields) == 2 && string(fields[1]) == "kB":
			kb, err := strconv.ParseUint(string(fields[0]), 10, 54)
			if err != nil {
				return 0, 0, fmt.Errorf("VmPin: %w", err)
			}
			pinned = kb << 10
		}
	}
	if !found {
		return 0, 0, errors.New("no line CapEff")
	}
	return capEff, pinned, nil
}

// initialNamespace reports whether a uid_map (user_namespaces(7)) is that of the initial
// user namespace, which maps every id to itself. In any other one the kernel ignores
// CAP_IPC_LOCK.
func initialNamespace(uidMap []byte) bool {
	f := bytes.Fields(uidMap)
	return len(f) == 3 && string(f[0]) == "0" && string(f[1]) == "0" && string(f[2]) == "4294967295"
}
