package doctor

import (
	"fmt"
	"strings"

	verbstransport "github.com/tryst-rdma/tryst/transport/verbs"
)

// registers reports whether the process will register memory with a device.
func (e *examiner) registers() bool {
	provider, _ := e.facts.uses()
	return e.facts.NoDiscovery == nil && len(e.facts.Inventory.Devices) > 0 && !e.facts.inUserSpace(provider)
}

func (e *examiner) memlock() {
	f := e.facts
	if !e.registers() {
		return
	}
	const check = "locked memory"
	m, least, most := f.Memlock, f.RegisterLeast+f.Messages, f.RegisterMost+f.Messages
	switch {
	case f.NoMemlock != nil:
		e.warn(check, doRead, "the limit could not be read: %v", f.NoMemlock)
	case m.Limit == verbstransport.NoMemlock:
		e.ok(check, "no limit")
	case m.Exempt:
		e.ok(check, "the limit of %s does not apply: the process has CAP_IPC_LOCK", bytesText(m.Limit))
	case !m.Enough(least):
		e.lacks(check, m.Raise(most), "at most %s may be locked, but the first arenas take %s (--arena) and the messages of channels %s (--rdma-queue-depth): devices will refuse them",
			bytesText(m.Limit), bytesText(f.RegisterLeast), bytesText(f.Messages))
	case !m.Enough(most):
		e.warn(check, m.Raise(most), "at most %s may be locked, but arenas may grow to %s (--arena-limit) and the messages of channels take %s (--rdma-queue-depth): transfers that do not fit go over gRPC",
			bytesText(m.Limit), bytesText(f.RegisterMost), bytesText(f.Messages))
	default:
		e.ok(check, "at most %s may be locked, which is enough for %s", bytesText(m.Limit), bytesText(most))
	}
}

func (e *examiner) hugePages() {
	f := e.facts
	if !e.registers() {
		return
	}
	const check = "huge pages"
	h := f.HugePages
	if h.Err != nil {
		e.warn(check, doRead, "some facts could not be read: %v", h.Err)
	}
	var free uint64
	var pools []string
	for _, p := range h.Pools {
		if p.Total > 0 {
			free += p.Free * p.Size
			pools = append(pools, fmt.Sprintf("%d of %d of %s free", p.Free, p.Total, bytesText(p.Size)))
		}
	}
	transparent := h.Transparent == "always" || h.Transparent == "madvise"
	switch {
	case free > 0 && free >= f.RegisterLeast:
		e.ok(check, "%s", strings.Join(pools, "; "))
	case transparent:
		e.ok(check, "%stransparent huge pages are enabled (%s)", reserved(pools), h.Transparent)
	case h.Err == nil:
		e.warn(check, "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled, or reserve some: sysctl vm.nr_hugepages=1024",
			"%stransparent huge pages are disabled: registering memory takes longer, and NICs have more cache misses in their translation tables", reserved(pools))
	}
}

func reserved(pools []string) string {
	if len(pools) == 0 {
		return "none are reserved; "
	}
	return strings.Join(pools, "; ") + ", too few for the first arenas; "
}
