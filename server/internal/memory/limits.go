package memory

const (
	// LeastConnections is how many gRPC connections are accepted however small the memory is.
	LeastConnections = 16

	// answersPart is the part of the common memory that the responses of peers may take while they come and are parsed.
	answersPart = 2

	// heapReserve is the part of the memory that the limit of the heap leaves for the program, threads and page
	// tables. leastHeap is the part that the heap always has, and heapSteps the part by which the memory
	// outside must change for a new limit.
	heapReserve = 20
	leastHeap   = 6
	heapSteps   = 64

	// recordsPart of the common part of memory may be one recording; recordsMost in bytes is enough for as many records
	// as one has at most, and recordsLeast for some thousand.
	recordsPart, recordsLeast, recordsMost = 32, 1 << 20, 256 << 20
)

// Units.
const (
	kib int64 = 1 << 10
	mib int64 = 1 << 20
	gib int64 = 1 << 30
)

// The parts of the memory, in bytes, as fractions and with the most that each takes on a large machine.
const (
	// requestsOf in 32 parts are for requests: a large graph, and some thousand calls of 16 KiB that wait.
	requestsOf = 5
	// requestsOfGraph is how many requests of max-graph-bytes fit at most; with small graphs the calls that wait
	// need requestsLeast.
	requestsOfGraph, requestsLeast = 8, 256 * mib
	// connectionsPart, of memory: some hundred connections in 1 GiB.
	connectionsPart, connectionsMost = 16, 2 * gib
	// copiesPart: clients that read slowly wait for one another beyond it.
	copiesPart, copiesMost = 32, gib / 2
	// waitingPart is for the records of waiting receives, and as much for their keys. Four requesters may have
	// their limits at once.
	waitingPart, waitingRecord = 32, 1600
	// WaitingRequesters is how many of them there are.
	WaitingRequesters = 4
	// rememberedPart is for ids that are remembered, 50 bytes each.
	rememberedPart, rememberedID = 64, 50
	// heapPart is for what no limit counts: the program, goroutines, and garbage before it is collected.
	heapPart, heapMost = 6, 2 * gib
	// arenaPart is for the memory registered for sending, and for that for receiving.
	arenaPart = 8
	// keptPart bounds the response cache, which refers to memory that is counted elsewhere.
	keptPart = 4
	// leastPart of the memory is for tensors, whatever the settings are.
	leastPart = 8

	// leastWaiting is the smallest default of max-waiting.
	leastWaiting = 1024
)

// maxRememberedIDs is what internal/delivery remembers at most for a requester.
const maxRememberedIDs = 1_000_000
