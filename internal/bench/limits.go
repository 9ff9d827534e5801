package bench

import "time"

// The numbers of this package, with their reasons.
const (
	// DefaultPairs and DefaultPairTime: with fewer or shorter runs a single
	// interruption of the machine affects the median.
	DefaultPairs    = 15
	DefaultPairTime = 300 * time.Millisecond

	// plotTimeout bounds the drawing of pictures. It takes less than a second; on an emulated processor, some.
	plotTimeout = time.Minute

	// quietLoad is the highest load average of an idle machine.
	quietLoad = 0.5

	// localBatch is how many local pairs are timed together: reading the clock
	// takes half the time of one pair.
	localBatch = 1000

	// localKeys and localKeyBytes are the number and length of the keys in the
	// local contests, as with TensorFlow's names of devices and edges.
	localKeys     = 64
	localKeyBytes = 130

	// manyReceives is the number of concurrent receives in recv-many.
	manyReceives = 10_000

	// waitingKeys is the number of waiting keys in the rows about memory.
	waitingKeys = 100_000

	// reducers is how many processes all-reduce together.
	reducers = 4
	// warmRounds is how many rounds precede the measured ones of each run: the processes may have
	// been stopped. minRounds is for a median, maxRounds bounds the answer.
	warmRounds = 2
	minRounds  = 3
	maxRounds  = 10_000

	// steppers is how many tasks a benchmark of steps has.
	steppers = 2
	// stepValues is how many values a task sends in turn: with two, each is another one than that
	// before, and they stay in the caches as the one tensor of a bare socket does.
	stepValues = 2
	// wholeValues is how many values of a run are compared as a whole: each value twice.
	wholeValues = 2 * stepValues
	// manyCalls is how many small calls a program has at once. The blocks are those of KV caches.
	manyCalls  = 16
	smallBlock = 64 << 10
	largeBlock = 256 << 10
	// These are times without work before a call. All are longer than a waiting goroutine spins, and
	// after the longest one the processors sleep deeply.
	shortPause = time.Millisecond
	idlePause  = 5 * time.Millisecond
	longPause  = 100 * time.Millisecond
	// minCalls is how many calls a run has at least, without a pause before each; maxCalls bounds
	// what waits at the sender.
	minCalls = 10
	maxCalls = 100_000

	// idleTime includes the probes of an idle channel.
	idleTime = 30 * time.Second

	// idleSettle is how long idle peers are left alone before they are watched. Unused memory goes
	// back to the system 10 s and 20 s after the last use (release-after).
	idleSettle = 25 * time.Second

	// idlePeers are enough to divide the noise of a garbage collector.
	idlePeers = 16

	// whole is the size of the largest tensor: above the limits of a protobuf
	// message and of a 32-bit length.
	whole = 5 << 30
	// wholeMemory is the memory that it needs: the tensor in each process, and a
	// reserve.
	wholeMemory = 12 << 30

	// xorBlock is the length of the blocks in which versions are compared.
	xorBlock = 1 << 20
	// weightsSeed makes the same weights in each run.
	weightsSeed = 43
	// versionsArena is the registered memory of a publisher or a watcher: two sets, and more for a larger --size.
	versionsArena = 16 << 30
	// seedBits has room for the tensors of a model in the seeds of a version.
	seedBits = 20
	// memoryTick is how often the memory of a process is looked at. One look takes some ms.
	memoryTick = 50 * time.Millisecond
	// slowBits is the rate of the slow network: of two sites. On it a version of slowPart of the model takes seconds.
	slowBits = 80e6
	slowPart = 16
	// proxyBuffer is what each socket of the slow network queues, and proxyPacket what it passes on at once: 1.6 ms.
	// proxyTick is the shortest wait, and proxyBurst how far one that was idle is behind.
	proxyBuffer = 64 << 10
	proxyPacket = 16 << 10
	proxyTick   = time.Millisecond
	proxyBurst  = 10 * time.Millisecond
	// slowPairs and fewPairs are how many pairs a contest has at most whose pairs take 30 s or 10 s.
	slowPairs = 5
	fewPairs  = 7
	// stoppedTime is how long a rollout is stopped, and updateEvery how often a version comes meanwhile.
	stoppedTime = 10 * time.Second
	updateEvery = time.Second
	// memoryUpdates is how many versions come while the memory is looked at.
	memoryUpdates = 4
	// backTries is how often a puller is stopped to see its memory come back.
	backTries = 3

	// smallRatio is from where a ratio has four decimals.
	smallRatio = 0.1

	// startWait bounds the start of the second process, which first fills its
	// tensors, and answerWait one response of it.
	startWait  = time.Minute
	answerWait = 2 * time.Minute
	// deathWait bounds the time from the end of the connections of a process until
	// its own end is detected.
	deathWait = time.Second
	// serveTick is how often the address file of a server is looked for.
	serveTick = 5 * time.Millisecond
	// jobPiece is the length of the pieces in which a pull requests large tensors.
	jobPiece = 4 << 20
	// stopWait is how long the second process may take to end.
	stopWait = 15 * time.Second
)

// DefaultSizes, in bytes, and DefaultInflight are the receives that are measured.
var (
	DefaultSizes    = []int64{8, 64 << 10, 1 << 20, 16 << 20}
	DefaultInflight = []int{1, 4}
	// plotShares are the shares of changed elements of a plot.
	plotShares = []float64{0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1}
	// backBounds are when memory is back at the latest, by route (docs/versions.md).
	backBounds = map[string]time.Duration{"shm": 5 * time.Second, "tcp": 5 * time.Second, "grpc": 15 * time.Second}
)
