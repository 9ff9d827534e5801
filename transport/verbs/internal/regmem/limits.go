package regmem

import (
	"time"

	"github.com/tryst-rdma/tryst/internal/idle"
)

const (
	// DefaultArena is the size of an arena in bytes. The tensors of most models fit,
	// registering one takes about ten milliseconds, and a pool of many GiB stays within a
	// device's limit on the number of regions.
	DefaultArena = 64 << 20

	// DefaultLimit is the limit of a pool in bytes. Registered memory is locked, and so
	// not available to other processes.
	DefaultLimit = 1 << 30

	// MinArena is the smallest arena in bytes: whole pages on every machine.
	MinArena = 1 << 20

	// firstShared is the size of the first arena in bytes when arenas are memfds. All pages of
	// one are made present at once, some ten milliseconds for 64 MiB, so arenas begin small
	// and double what there is.
	firstShared = 8 << 20

	// endWait is how long an allocation waits for memory that peers map to go back. Peers
	// that run confirm within a millisecond. One that does not costs an allocation at the
	// limit this time.
	endWait = 100 * time.Millisecond

	// granule is the size of the smallest block and the alignment of all blocks, in
	// bytes: a cache line (tensor.Alignment).
	granule = 64

	// pageMultiple is the unit of mapped memory in bytes: the largest page (64 KiB on
	// linux/arm64).
	pageMultiple = 64 << 10

	// ownWaste bounds how much larger than requested an idle arena for one tensor may be
	// to be used again: by a quarter. A larger one is not used, since all of it counts
	// against the limit; a new one of the right size is registered.
	ownWaste = 4

	// shareParts is the divisor for the part of the receiving pool that destinations
	// given out in advance may take, and for the part in quarantine beyond which channels
	// are closed: a quarter each (ARCHITECTURE.md section 4).
	shareParts = 4

	// maxGiveBack is how often an allocation lets the users of a pool release what they do not need, before it is
	// refused: its size, four times that, since what they release may not lie together, and all.
	maxGiveBack = 3

	// QuarantineTime is how long a block may be in quarantine before its
	// channel is closed (ARCHITECTURE.md section 4).
	QuarantineTime = 10 * time.Second

	// DefaultIdle is how long an arena stays registered without use. Registering again takes
	// some ten milliseconds for an arena: about 1 % of the pause for a pool of 1 GiB.
	DefaultIdle = idle.DefaultTime
)
