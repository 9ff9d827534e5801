package verbstest

import (
	"time"

	"github.com/tryst-rdma/tryst/verbs"
)

// segmentSize is how many bytes travel, arrive, are lost and are acknowledged as
// one. It stands in for the packets of a path MTU, which would make a transfer of
// gigabytes slow: 16 of the largest ones.
const segmentSize = 64 << 10

// windowSegments bounds what a queue pair has on the way, 4 MiB. NICs allow much
// more, rxe half a MiB. It also bounds what is kept of a sender that died.
const windowSegments = 64

// ackEvery is after how many segments in the middle of messages an
// acknowledgement goes; at most a quarter of the window, so that it never stops.
const ackEvery = windowSegments / 4

// maxResponderAtomics is how many answers of atomics are kept for a requester
// that asks again, and so the limit of reads and atomics under way, as rxe's.
const maxResponderAtomics = 128

// sparseFrom is the size of a copy from which on empty pages are looked for; a
// smaller one is faster copied.
const sparseFrom = segmentSize / 4

// pageSize is the unit in which empty memory is left alone: that of the memory
// mapping of most machines. Where pages are larger nothing breaks.
const pageSize = 4 << 10

// regionGap lies between the addresses of two memory regions, so that an access
// past the end of one never meets the next.
const regionGap = 1 << 20

// The GID table of an Ethernet port, as rxe has it: the link-local address, then
// the IPv4 address.
const (
	gidIndexLinkLocal = 0
	gidIndexIPv4      = 1
	gidTableSize      = 16
)

// defaultLimits are a device's when its options give none, of the magnitude of
// rxe's (drivers/infiniband/sw/rxe/rxe_param.h).
func defaultLimits() verbs.Limits {
	return verbs.Limits{
		QPs: 64 << 10, CQs: 64 << 10, MRs: 64 << 10, PDs: 4 << 10,
		SendWR: 1 << 16, RecvWR: 1 << 16, SGEs: 32, CQEntries: 1 << 20,
		MRSize: 1 << 42, ReadAtomic: maxResponderAtomics, Atomics: true,
	}
}

// Limits that DeviceOptions can change.
const (
	defaultMaxInline  = 400     // rxe's
	defaultMaxMessage = 1 << 30 // ConnectX's
	defaultMTU        = verbs.MTU4096
)

// rnrForEver and retryForEver are the counts that mean "for ever": RNR by the
// specification (volume 1, 9.7.5.2.8), retry as rxe takes it.
const (
	rnrForEver   = 7
	retryForEver = 7
)

// rnrTime is how long a requester waits after an RNR NAK, by the code in it
// (specification, volume 1, table 45), in units of 10 us.
var rnrTime = [32]time.Duration{
	65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192,
	256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
}

const rnrUnit = 10 * time.Microsecond
