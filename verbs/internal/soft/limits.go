package soft

import "github.com/tryst-rdma/tryst/verbs"

const (
	// MaxSGEs is the limit of scatter/gather elements of a work request, as in rxe.
	MaxSGEs = 30
	// MaxReadAtomic limits the READs and atomics that are outstanding on a queue pair, in each
	// direction. Each takes a slot at the responder.
	MaxReadAtomic = 16
)

// Limits are those of a device in Go. They are those of a NIC, since memory is allocated on use.
func Limits() verbs.Limits {
	return verbs.Limits{
		QPs: 1 << 16, CQs: 1 << 16, MRs: 1 << 24, PDs: 1 << 16, SendWR: 1 << 15, RecvWR: 1 << 15, SGEs: MaxSGEs,
		CQEntries: 1 << 20, MRSize: 1 << 48, ReadAtomic: MaxReadAtomic, Atomics: true,
	}
}

// maxEvents limits the asynchronous events that wait for NextEvent. A full queue loses the oldest.
const maxEvents = 256

// maxDriven is the number of queues of queue pairs up to which a goroutine that polls their completion queue
// works for all of them. With more of them each poll would take longer than it saves.
const maxDriven = 32
