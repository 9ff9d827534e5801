package sessions

const (
	// descriptorsPart is the part of the descriptors, and memoryPart that of the memory of tensors, that connections
	// to tasks which only sessions know may take. othersPart of them are for other sessions than the one that
	// has most.
	descriptorsPart = 8
	memoryPart      = 8
	othersPart      = 4

	// linesOfSession bounds the log lines about the peers of one session in a minute, and linesInAll those of all
	// sessions: a cluster may have thousands of tasks that cannot be reached.
	linesOfSession, linesInAll = 30, 300
)
