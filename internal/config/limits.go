package config

import "time"

// maxUnary is the limit of a protobuf message, 2 GiB, less 1 MiB for the
// other fields of the response.
const maxUnary = 2*gib - mib

// minKeepalive bounds what probes cost: each is a round trip.
const minKeepalive = 10 * time.Second

// minTimeout is code 1 of the specification (InfiniBand, volume 1, 11.6.2);
// code 0 means no timeout. A dead peer is detected after the timeout times
// the number of retries, which MaxTimeout bounds.
const (
	minTimeout = 8192 * time.Nanosecond
	MaxTimeout = time.Minute
)

// maxCount fits an int of 32 bits.
const maxCount = 1_000_000_000

// maxSteps bounds sessions and running steps, each of which has goroutines.
const maxSteps = 1_000_000

// maxQuoted is how many bytes of a value an error shows at most.
const maxQuoted = 200

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
	waitingPart, waitingRequesters, waitingRecord = 32, 4, 1600
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
