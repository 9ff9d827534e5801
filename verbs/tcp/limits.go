package tcp

import (
	"time"

	"github.com/tryst-rdma/tryst/verbs/internal/soft"
	"github.com/tryst-rdma/tryst/verbs/tcp/internal/frame"
)

const (
	maxInline     = 1024
	maxSGEs       = soft.MaxSGEs
	maxReadAtomic = soft.MaxReadAtomic
)

const (
	// minSegment and maxSegment limit the content that a frame carries, in bytes. Between two frames
	// there is space for acknowledgements and responses, and a reader or writer holds memory of the
	// user for one of them at most. Within the limits it is the share of the connection (pace.go).
	minSegment = 256 << 10
	maxSegment = frame.MaxPayload
	// batchBytes and batchContents limit what one system call writes. On a fast connection it is
	// the share of it.
	batchBytes    = 2 * minSegment
	batchContents = 8
	// smallContent is the longest content that is copied behind its header: an element of a
	// vector costs the kernel more.
	smallContent = 4 << 10
	// stagingBytes is the size of the buffer for headers and small content. When it is full,
	// the batch is written.
	stagingBytes = 32 << 10
	// copyBytes is the size of the buffer through which content passes under TLS: four records,
	// which stay in a cache.
	copyBytes = 64 << 10
	// readBytes is the size of the buffer of a reader. It holds headers and small content.
	readBytes = 32 << 10
	// directBytes is the most that a post writes itself, in bytes. More goes to the writer,
	// so that a post does not take the time of a long copy.
	directBytes = 32 << 10
	// behindBytes is how much a reader reads behind content that it reads straight into its place: a
	// header and little content. More would be content that is copied once more.
	behindBytes = 1 << 10
	// hostSendBuffer is the send buffer between two processes of a host (SO_SNDBUF, which the kernel
	// doubles). No distance has to be bridged. With the some MiB that the kernel chooses, content has
	// left the caches before the peer reads it.
	hostSendBuffer = 256 << 10
	// busySpinTime is how long a reader looks at its socket under Options.Busy before it sleeps.
	// spinLooks is the number of looks between two looks at the clock, in some 10 µs.
	busySpinTime = time.Millisecond
	spinLooks    = 16
	// ackDelay is how long an acknowledgement waits for a frame that carries it, or for the next poll. A
	// program may never poll again.
	ackDelay = time.Millisecond
	// yieldLooks is how many polls in a row, in some 20 µs, find nothing before the goroutine gives up its
	// processor once: the kernel may have put the thread of the peer there.
	yieldLooks = 20
	// paceTime is how long a connection may take to send what the kernel gets at a time
	// (pace.go). The share is at least minShare and at most maxShare, and is how much the kernel
	// takes that it has not sent yet (TCP_NOTSENT_LOWAT).
	paceTime = time.Millisecond
	minShare = 128 << 10
	maxShare = 4 << 20
)

const (
	// connectTime is how long a queue pair waits for its connection, from RTR on.
	connectTime = 10 * time.Second
	// greetingTime is the default of Options.GreetingTime.
	greetingTime = 10 * time.Second
	// maxUnproven is how many accepted connections may be without a greeting, so that a
	// stranger holds no more memory than that. It is more than what a port that is shared with
	// gRPC passes on, which closes the oldest ones and not the next one.
	maxUnproven = 512
	// dialPause is the time between the two attempts to dial the peer.
	dialPause = 500 * time.Millisecond
	// acceptPause is the time after a failed accept, as when no file descriptors are left.
	acceptPause = 100 * time.Millisecond
	// minPatience is the least time without a sign of life after which a connected queue pair
	// fails: TCP itself repeats lost segments after 200 ms at the earliest.
	minPatience = 500 * time.Millisecond
	// connectFactor and patienceFactor multiply (retries + 1) times the timeout, which may last
	// up to four times as long (specification, volume 1, 9.7.6.1.3): the first while the queue
	// pair waits for its connection, the second afterwards.
	connectFactor  = 4
	patienceFactor = 2
	// probeShare is the share of the patience after which a requester asks for a sign of life.
	probeShare = 4
	// reportTime is how often a responder reports that a long message is coming in.
	reportTime = 50 * time.Millisecond
)

const (
	// onlyPort is the number of a device's only port, and onlyGID the index of its only GID.
	onlyPort = soft.OnlyPort
	onlyGID  = 0
	// deviceName is the name of the only device.
	deviceName = "tcp0"
)

// never is a duration for a timer that is created before it is needed.
const never = time.Duration(1<<63 - 1)

// The segment fits a frame, and a batch its buffers.
const (
	_ = uint(frame.MaxPayload - maxSegment)
	_ = uint(stagingBytes - smallContent - frame.HeaderLen)
)
