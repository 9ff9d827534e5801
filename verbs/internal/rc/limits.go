package rc

import "time"

// RNRUnlimited is the RNR retry count without a limit (specification, volume 1, 9.7.5.2.8).
const RNRUnlimited = 7

// rnrDelay maps the code of an RNR timer to the time that the requester waits, in rnrUnit
// (specification, volume 1, table 45).
var rnrDelay = [32]time.Duration{
	65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192,
	256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
}

const rnrUnit = 10 * time.Microsecond

// RNRDelay returns how long a requester waits after an RNR with a timer code (RTRAttr.MinRNRTimer);
// false if there is no such code.
func RNRDelay(code uint32) (time.Duration, bool) {
	if code >= uint32(len(rnrDelay)) {
		return 0, false
	}
	return rnrUnit * rnrDelay[code], true
}
