package regmem

import "time"

const (
	// DefaultArena is the size of an arena in bytes: a tensor of most models
	// fits, registering one takes some ten milliseconds, and a device that
	// limits regions holds a pool of many GiB.
	DefaultArena = 64 << 20

	// DefaultLimit is what a pool may register at most, in bytes. Registered
	// memory is locked: what one process takes is missing to all others.
	DefaultLimit = 1 << 30

	// MinArena keeps an arena to whole pages on every machine.
	MinArena = 1 << 20

	// granule is the smallest block and the alignment of all, in bytes: a
	// cache line (tensor.Alignment).
	granule = 64

	// pageMultiple rounds what is mapped: pages are up to 64 KiB (linux/arm64).
	pageMultiple = 64 << 10

	// ownWaste is how much larger than asked an idle arena of its own may be to
	// be used again: a quarter. Beyond that a new one of the right size pays,
	// since all of it counts against the limit.
	ownWaste = 4

	// shareParts is the part of the receiving pool that early destinations may
	// take, and the part that quarantined ones may take before channels are
	// closed for it: a quarter each (ARCHITECTURE.md section 4).
	shareParts = 4

	// QuarantineTime is how long a block may be in quarantine before its
	// channel is closed (ARCHITECTURE.md section 4).
	QuarantineTime = 10 * time.Second

	// DefaultIdle is how long an arena is kept without use: a training step
	// that returns after a minute still finds its memory registered.
	DefaultIdle = 2 * time.Minute
)
