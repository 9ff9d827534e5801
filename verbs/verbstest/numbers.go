package verbstest

import "github.com/tryst-rdma/tryst/verbs"

// segmentSize is the unit of transfer, loss and acknowledgement in bytes. It stands for 16
// packets of the largest path MTU: single packets would make transfers of gigabytes slow.
const segmentSize = 64 << 10

// windowSegments limits the unacknowledged segments of a queue pair, to 4 MiB. It also
// limits the copies that are kept for a sender that died.
const windowSegments = 64

// ackEvery is the number of segments after which a long message is acknowledged. At most a
// quarter of the window, so the sender never stalls.
const ackEvery = windowSegments / 4

// maxReadAtomic is the limit of outstanding reads and atomics, the same as in rxe. As many
// responses of atomics are kept for requests that are sent again.
const maxReadAtomic = 128

// sparseMin is the smallest copy, in bytes, that skips empty pages. For smaller ones the
// check costs more than the copy.
const sparseMin = segmentSize / 4

// pageSize is the unit of empty memory that is not written: the page size of most machines.
// Other page sizes work too.
const pageSize = 4 << 10

// regionGap is the distance between the addresses of two memory regions in bytes, so that
// an access beyond the end of one never hits the next.
const regionGap = 1 << 20

// The GID table of an Ethernet port, as in rxe: the link-local address, then the IPv4
// address.
const (
	gidIndexLinkLocal = 0
	gidIndexIPv4      = 1
	gidTableSize      = 16
)

// defaultLimits returns the limits of a device whose options give none. They are similar to
// those of rxe (drivers/infiniband/sw/rxe/rxe_param.h).
func defaultLimits() verbs.Limits {
	return verbs.Limits{
		QPs: 64 << 10, CQs: 64 << 10, MRs: 64 << 10, PDs: 4 << 10,
		SendWR: 1 << 16, RecvWR: 1 << 16, SGEs: 32, CQEntries: 1 << 20,
		MRSize: 1 << 42, ReadAtomic: maxReadAtomic, Atomics: true,
	}
}

// Defaults of DeviceOptions.
const (
	defaultMaxInline  = 400     // bytes, as in rxe
	defaultMaxMessage = 1 << 30 // bytes, as in ConnectX
	defaultMTU        = verbs.MTU4096
)

// retryUnlimited is the retry count for timeouts without a limit, as in rxe.
const retryUnlimited = 7
