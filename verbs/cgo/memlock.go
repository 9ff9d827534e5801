//go:build linux && cgo

package libibverbs

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tryst-rdma/tryst/verbs"
)

// memlock is what the kernel compares when memory is to be pinned
// (drivers/infiniband/core/umem.c, ib_umem_get): pages pinned by the process so
// far plus the new ones against RLIMIT_MEMLOCK, unless it has CAP_IPC_LOCK. The
// queues of most NICs are pinned memory of the process too.
type memlock struct {
	soft, hard uint64 // bytes; unix.RLIM_INFINITY for no limit
	pinned     uint64 // bytes, VmPin
	exempt     bool   // has CAP_IPC_LOCK
}

// readMemlock asks the kernel. What it cannot learn is taken as no limit.
func readMemlock() memlock {
	m := memlock{soft: unix.RLIM_INFINITY, hard: unix.RLIM_INFINITY}
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit) == nil {
		m.soft, m.hard = limit.Cur, limit.Max
	}
	if status, err := os.ReadFile("/proc/self/status"); err == nil {
		m.pinned = uint64(statusNumber(status, "VmPin", 10)) << 10 // "VmPin:  64 kB"
		m.exempt = statusNumber(status, "CapEff", 16)>>unix.CAP_IPC_LOCK&1 == 1
	}
	// The capability counts in the first user namespace only.
	if uids, err := os.ReadFile("/proc/self/uid_map"); err == nil {
		m.exempt = m.exempt && strings.Join(strings.Fields(string(uids)), " ") == "0 0 4294967295"
	}
	return m
}

// statusNumber is the number behind a name in proc_pid_status(5), 0 when absent.
func statusNumber(status []byte, name string, base int) int64 {
	for line := range bytes.Lines(status) {
		if rest, ok := bytes.CutPrefix(line, []byte(name+":")); ok {
			if fields := bytes.Fields(rest); len(fields) > 0 {
				n, _ := strconv.ParseInt(string(fields[0]), base, 64)
				return n
			}
		}
	}
	return 0
}

// tooLow reports whether the limit is the likely reason that so many bytes could
// not be pinned. For 0, which is not known, any limit is.
func (m memlock) tooLow(bytes uint64) bool {
	return !m.exempt && m.soft != unix.RLIM_INFINITY && (bytes == 0 || m.pinned+bytes > m.soft)
}

// err is the answer to ENOMEM when the limit is its likely reason, else nil.
func (m memlock) err(op, object string, bytes uint64, cause error) error {
	if !m.tooLow(bytes) {
		return nil
	}
	need := "memory for its queue"
	if bytes > 0 {
		need = strconv.FormatUint(bytes, 10) + " bytes"
	}
	return &verbs.Error{
		Op: op, Object: object,
		Err: fmt.Errorf("%w: %s more to lock, %d bytes are locked, and RLIMIT_MEMLOCK is %s (hard limit %s): %w",
			verbs.ErrMemlock, need, m.pinned, limitWord(m.soft), limitWord(m.hard), cause),
		Hint: fmt.Sprintf("raise the limit to %d bytes at least, better to unlimited: ulimit -l (in KiB), LimitMEMLOCK= of a systemd unit, "+
			"--ulimit memlock= of a container, /etc/security/limits.conf; or give the process CAP_IPC_LOCK", m.pinned+max(bytes, m.soft+1)),
	}
}

func limitWord(n uint64) string {
	if n == unix.RLIM_INFINITY {
		return "unlimited"
	}
	return strconv.FormatUint(n, 10) + " bytes"
}
