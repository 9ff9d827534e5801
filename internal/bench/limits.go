package bench

import "time"

// The numbers of this package, with their reasons.
const (
	// DefaultPairs and DefaultPairTime: fewer or shorter ones let one hiccup
	// of the machine into the median.
	DefaultPairs    = 15
	DefaultPairTime = 300 * time.Millisecond

	// quietLoad is the load average of a machine with nothing else to do.
	quietLoad = 0.5

	// localBatch is how many local pairs are timed at once: reading the clock
	// costs as much as half of one.
	localBatch = 1000

	// localKeys and localKeyBytes are the keys of the local contests: what
	// TensorFlow's names of devices and edges come to.
	localKeys     = 64
	localKeyBytes = 130

	// manyReceives are under way at once in recv-many.
	manyReceives = 10_000

	// waitingKeys wait at once in the rows on memory.
	waitingKeys = 100_000

	// idleTime is long enough for the probes of an idle channel to come.
	idleTime = 30 * time.Second

	// whole is the size of the tensor that has to arrive whole: above what one
	// protobuf message, and what a 32-bit length, can hold.
	whole = 5 << 30
	// wholeMemory is what it takes: the tensor in each process, and room.
	wholeMemory = 12 << 30

	// startWait bounds the start of the second process, which fills its tensors
	// first, and answerWait one answer of it.
	startWait  = time.Minute
	answerWait = time.Minute
	// deathWait is how long the end of a process may be known later than the end
	// of its connections.
	deathWait = time.Second
	// stopWait is how long the second process may take to end.
	stopWait = 15 * time.Second
)

// DefaultSizes and DefaultInflight are the receives that are measured.
var (
	DefaultSizes    = []int64{8, 64 << 10, 1 << 20, 16 << 20}
	DefaultInflight = []int{1, 4}
)
