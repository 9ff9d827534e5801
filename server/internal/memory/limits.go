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
