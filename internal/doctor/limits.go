package doctor

import "time"

// dialTimeout bounds the question to one peer. A host that is there answers in
// milliseconds; one behind a filter that drops never does.
const dialTimeout = 5 * time.Second

// probeTimeout bounds the question to one peer by RDMA: its longest part is
// handshake.HelloWait, 10 s, after which the bootstrap itself says what is wrong.
const probeTimeout = 15 * time.Second

// closeTimeout bounds the farewell to a peer that was asked so.
const closeTimeout = 2 * time.Second

// What is registered to ask a peer by RDMA: messages alone.
const (
	probeArena      = 1 << 20
	probeArenaLimit = 16 << 20
)

// peersAtOnce bounds how many peers are asked at the same time, so that a large
// cluster is no burst.
const peersAtOnce = 32

// maxFile bounds what is read of one file of sysfs, in bytes: a page.
const maxFile = 4096
