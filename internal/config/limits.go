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
