package listen

import "time"

// lookupTimeout bounds each request to the resolver. The address is only a hint for the choice of
// a device, so a start must not wait longer for it.
const lookupTimeout = 2 * time.Second

// maxDialedAddresses bounds the addresses of a server that listens on all interfaces.
const maxDialedAddresses = 8

const (
	// acceptPauseMin and acceptPauseMax bound the pause after an accept that failed: descriptors are
	// free again when some connection ends.
	acceptPauseMin = 5 * time.Millisecond
	acceptPauseMax = time.Second

	// maxHTTPConns and maxHTTPConnsPerAddress bound the open connections of metrics-address, and those of
	// pprof-address. A monitoring system has one or two, an orchestrator one for each probe. The first also bounds
	// the descriptors that they take from the other listeners, so it is below the smallest usual limit of
	// descriptors, 1024.
	maxHTTPConns           = 96
	maxHTTPConnsPerAddress = 32
	// newcomerHTTPConns of them are for addresses that have none, so that a few hosts cannot take all.
	newcomerHTTPConns = 24
)
