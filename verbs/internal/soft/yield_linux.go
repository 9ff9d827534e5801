package soft

import "golang.org/x/sys/unix"

// Yield lets other threads have the processor (sched_yield(2)). A goroutine that looks for work of the
// peer would otherwise keep the peer's thread from the processor that both are on.
func Yield() { _, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }
