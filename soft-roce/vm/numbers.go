package vm

import "time"

const (
	// memoryMiB is the guest's memory. It includes /dev/shm, and the files that the
	// guest writes outside the share.
	memoryMiB = 4096
	// processors is the number of the guest's processors: one for the process at each end of a cable.
	processors = 2

	// kvmDeadline is how long a kernel under KVM may take until its init speaks. It takes 2 s where KVM works; where it does not, QEMU
	// aborts at once or hangs for ever at "Booting from ROM".
	kvmDeadline = 20 * time.Second
	// bootDeadline is the same for an emulated processor, which is slower.
	bootDeadline = 3 * time.Minute
	// readyDeadline is how long the guest may then take to set up file systems and devices, until
	// commands can run.
	readyDeadline = 3 * time.Minute
	// lockPeriod is the interval at which the lock on the cache is tried: much shorter than a
	// download, for which another process holds it.
	lockPeriod = 100 * time.Millisecond
	// terminalBuffer is what is read of a terminal at once, in bytes: more than anybody types or pastes in one go is read in more.
	terminalBuffer = 4 << 10

	// consoleLines is how many lines of the console are kept for an error, consoleLine how many bytes
	// of each.
	consoleLines = 25
	consoleLine  = 400
)
