package memory

import (
	"errors"
	"log/slog"
	"math"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// OfProcess returns how many bytes this process may use; 0 when it is not known. A limit of the control group that
// cannot be read is logged. A nil group is that of this process, and a nil log discards.
func OfProcess(group memlimit.Provider, log *slog.Logger) int64 {
	if group == nil {
		group = memlimit.FromCgroup
	}
	memory, unread := ofProcess(group, memlimit.FromSystem)
	if unread != nil && log != nil {
		log.Warn("the memory limit of the control group cannot be read, so the memory of the whole host counts as that of this process; set memory", "reason", unread)
	}
	return memory
}

// ofProcess returns how many bytes this process may use: the limit of its control group or the memory of the
// machine, whichever is less; 0 when neither is known. The error tells why a limit of the control group, which may
// exist, is not known.
func ofProcess(group, system memlimit.Provider) (limit int64, unread error) {
	least := uint64(math.MaxInt64)
	m, err := group()
	switch {
	case err == nil:
		least = min(least, m)
	case !errors.Is(err, memlimit.ErrNoLimit) && !errors.Is(err, memlimit.ErrNoCgroup) && !errors.Is(err, memlimit.ErrCgroupsNotSupported):
		unread = err
	}
	if m, err := system(); err == nil {
		least = min(least, m)
	}
	if least == math.MaxInt64 {
		return 0, unread
	}
	return int64(least), unread
}
