package doctor

import "time"

// dialTimeout bounds an attempt to reach one peer over gRPC. A running host answers in
// milliseconds; one behind a firewall that drops packets never does.
const dialTimeout = 5 * time.Second

// probeTimeout bounds an attempt to reach one peer by RDMA. Its longest part is handshake.HelloWait,
// 10 s, after which the bootstrap fails with a more specific error.
const probeTimeout = 15 * time.Second

// measureTimeout bounds the measurement of one path, which sends two series of messages.
const measureTimeout = 10 * time.Second

// closeTimeout bounds how long the channel to that peer may take to close.
const closeTimeout = 2 * time.Second

// The arena and its limit for that attempt, in bytes. Only messages are registered: no tensor moves.
const (
	probeArena      = 1 << 20
	probeArenaLimit = 16 << 20
)

// The arena and its limit for a measurement of the bandwidth, what it pulls, and its time.
const (
	rateArena      = 16 << 20
	rateArenaLimit = 256 << 20
	rateBytes      = 64 << 20
	rateTimeout    = 20 * time.Second
)

// peersAtOnce bounds how many peers are reached at the same time, so that a large cluster does not
// cause a burst.
const peersAtOnce = 32

// maxFile bounds what is read of one file in sysfs, in bytes: a page, the limit of sysfs.
const maxFile = 4096
