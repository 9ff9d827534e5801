package vm

import "time"

const (
	// memoryMiB is the guest's memory. It includes /dev/shm, and the files that the
	// guest writes outside the share.
	memoryMiB = 4096
	// processors is the number of the guest's processors: one for the process at each end of a cable.
	processors = 2

	// kvmDeadline limits the time under KVM until the guest's init sends its first frame. It takes 2 s
	// if KVM works. Otherwise QEMU aborts at once, or hangs at "Booting from ROM".
	kvmDeadline = 20 * time.Second
	// bootDeadline is the same for an emulated processor, which is slower.
	bootDeadline = 3 * time.Minute
	// readyDeadline is how long the guest may then take to set up file systems and devices, until
	// commands can run.
	readyDeadline = 3 * time.Minute
	// lockPeriod is the interval at which the lock on the cache is tried: much shorter than a
	// download, for which another process holds it.
	lockPeriod = 100 * time.Millisecond
	// terminalBuffer is the size in bytes of one read of a terminal. Longer input takes several reads.
	terminalBuffer = 4 << 10

	// consoleLines is how many lines of the console are kept for an error, consoleLine how many bytes
	// of each.
	consoleLines = 25
	consoleLine  = 400
)
