//go:build linux

package shm

import (
	"time"

	"github.com/tryst-rdma/tryst/verbs/internal/soft"
)

const (
	maxInline     = 448     // so that the longest entry of a ring has entryHeader + 512 bytes
	maxMessage    = 1 << 31 // specification, volume 1, 9.7.6: RC messages
	maxReadAtomic = soft.MaxReadAtomic
)

const (
	// sliceSize is how much is copied at once: as long as that a Close may wait. A slice fits
	// into the second-level cache of most processors.
	sliceSize = 256 << 10
	// longSlice is the same for messages of longMessage and more. From 1 MiB on Go's copy on amd64
	// writes past the caches, which is half as fast again, so it takes no longer than a slice in
	// them. Shorter messages stay in the caches for their reader.
	longSlice   = 1 << 20
	longMessage = 4 << 20
	// chunkSize is the unit in which memory that is not a memfd goes through a memfd of the queue
	// pair, and in which READs are requested.
	chunkSize = 256 << 10
	// sendChunks and readChunks are the numbers of chunks for requests and for responses to
	// READs: one is copied into while others are copied from.
	sendChunks = 4
	readChunks = 4
	// maxBatch is the number of requests of the peer that are executed before this side looks at
	// the responses of the peer.
	maxBatch = 32
)

const (
	// connectTime is how long a queue pair in RTR waits for its connection, and how long a
	// foreign connection may take for its first message.
	connectTime = 10 * time.Second
	// maxUnproven is the number of connections that have not proved anything yet. Beyond it
	// the oldest are closed.
	maxUnproven = 256
	// maxClosers is the number of goroutines that close what may block. A stranger or a peer can hold
	// each of them, with its thread, for as long as it likes.
	maxClosers = 4
	// maxToClose is the number of connections of strangers in which descriptors wait, from which on no
	// others are accepted. Only before Linux 6.16 there are any. It is large, so that a peer is
	// served while strangers attack; each takes a descriptor. For peers it is the number from which
	// on queue pairs do not connect.
	maxToClose = 1024
	// maxToCloseOfOne is the same for one process that has proved itself. More than a packet can carry,
	// so that one mistake does not count.
	maxToCloseOfOne = 256
	// warnInterval is the least time between two warnings of strangers.
	warnInterval = time.Minute
	// maxTakers and maxTakersOfOne are the goroutines that take descriptors and map memory, of all
	// processes and of one. A hostile peer can hold its own.
	maxTakers      = 16
	maxTakersOfOne = 2
	// maxDescriptors is the number of descriptors that a packet can carry (SCM_MAX_FD of the kernel). With
	// less space for them the kernel would close the rest, which may block.
	maxDescriptors = 253
	// staleAge is the age from which a socket that refuses connections is removed.
	staleAge = time.Minute
	// maxBans bounds the processes that are remembered as banned, at 16 bytes each.
	maxBans = 1024
	// retryDelay is the pause before something is tried again that the kernel had no room for.
	retryDelay = time.Millisecond
	// errorLogPause is the time between two ERROR lines of one kind that peers cause.
	errorLogPause = time.Minute
	// minPatience is the least time without progress after which a queue pair fails. Nothing is lost in
	// shared memory, but a peer's process may wait for a processor: on two of them under twenty
	// threads for some 100 ms. verbs/tcp has the same.
	minPatience = 500 * time.Millisecond
	// spinTime is how long a goroutine looks for work before it sleeps. A peer that replies at
	// once does so within this time; sleeping and waking costs about as much. busySpinTime is
	// that of Options.Busy.
	spinTime     = 30 * time.Microsecond
	busySpinTime = time.Millisecond
	// wokenPolls is how many polls, in some 20 µs, a goroutine makes after it has woken the peer before it
	// gives up its processor once: a peer on another one has mostly answered by then. Two that
	// yield more often stay on one processor, where each answer waits for a yield.
	wokenPolls = 200
	// pollBatch is maxBatch for a goroutine that polls: it wants to see completions.
	pollBatch = 4
	// spinLoads is the number of looks between two looks at the clock.
	spinLoads = 64
)

const (
	// maxPackets is the number of packets of a peer that are handled before other goroutines may have
	// the drive lock. Mapping a long memfd takes milliseconds.
	maxPackets = 32
	// maxUnread is the number of packets that are looked at for descriptors when a connection is closed. It
	// is more than a socket holds.
	maxUnread = 4096
	// maxMappings and maxMappingsOfOne limit the memfds that are mapped at the same time, per opened
	// device, of all processes and of one. The kernel lets a process have 65,530 mappings
	// (vm.max_map_count); without a free one the Go runtime ends it.
	maxMappings      = 1 << 14
	maxMappingsOfOne = 1 << 11
	// maxFiles limits the memfds of a peer that are mapped at the same time, per queue pair.
	maxFiles = 1024
	// maxFileSize limits the size of one of them, in bytes. Mapping takes addresses and page
	// tables only, since the owner has allocated the memory.
	maxFileSize = 1 << 40
	// maxMappedPeer limits the bytes that are mapped for one process.
	maxMappedPeer = 1 << 40
	// maxMapped limits the bytes of all of them, per opened device: page tables take 1/512 of it.
	maxMapped = 1 << 42
)

const (
	// onlyPort is the number of the device's only port.
	onlyPort = soft.OnlyPort
	psnMask  = 1<<24 - 1
)

const (
	// maxReason limits the text of a refusal, in bytes.
	maxReason = 200
	// maxPacket is the longest packet on the socket, in bytes: a refusal with its text. A longer one breaks the
	// connection.
	maxPacket = 256
	// maxSocketName is the longest name of a unix socket in bytes (unix(7)), without the zero at its end or its
	// beginning.
	maxSocketName = 107
)
