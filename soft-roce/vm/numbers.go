package vm

import "time"

const (
	// memoryMiB is the guest's memory. What it writes outside the share and /dev/shm is in it, too.
	memoryMiB = 4096
	// processors is how many it has: two processes at the two ends of a cable.
	processors = 2

	// kvmDeadline is how long a kernel under KVM may take until its init speaks. It takes 2 s where KVM works; where it does not, QEMU
	// aborts at once or hangs for ever at "Booting from ROM".
	kvmDeadline = 20 * time.Second
	// bootDeadline is the same for an emulated processor, where it takes 5 s on an idle machine.
	bootDeadline = 3 * time.Minute
	// readyDeadline is from there until commands can run: file systems and devices.
	readyDeadline = 3 * time.Minute
	// lockPeriod is how often the lock on the cache is asked for: much shorter than what its holder does, a download.
	lockPeriod = 100 * time.Millisecond
	// terminalBuffer is what is read of a terminal at once, in bytes: more than anybody types or pastes in one go is read in more.
	terminalBuffer = 4 << 10

	// consoleLines and consoleLine are how much of the console is kept for an error: that many lines of that many bytes.
	consoleLines = 25
	consoleLine  = 400
)
