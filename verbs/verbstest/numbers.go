package verbstest

import (
	"time"

	"github.com/tryst-rdma/tryst/verbs"
)

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

// rnrUnlimited and retryUnlimited are the retry counts without a limit: for RNR by the
// specification (volume 1, 9.7.5.2.8), for timeouts as in rxe.
const (
	rnrUnlimited   = 7
	retryUnlimited = 7
)

// rnrTime maps the code of an RNR NAK to the time that the requester waits, in rnrUnit
// (specification, volume 1, table 45).
var rnrTime = [32]time.Duration{
	65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192,
	256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
}

const rnrUnit = 10 * time.Microsecond
