package checkpoint

import "time"

// The numbers of this package, with their reasons. Those that an operator may
// change are defaults of options.
const (
	// DefaultCacheBytes is how much of the files' content stays in memory
	// for the next puller, on top of what pullers hold: what pullers that
	// started together are apart from each other. It is not larger since the
	// kernel keeps the files too; reading them again from there costs less
	// than memory that was never touched (measured: a first pull of 548 MB
	// took three times as long when all of it went into the cache).
	DefaultCacheBytes = 256 << 20

	// DefaultInflight is how many tensors a puller receives at once: one is
	// sent, one is checked, and the sender reads the next ones from its
	// disk. More only hold more memory (measured on two cores: no gain from
	// 2 to 16).
	DefaultInflight = 4

	// DefaultInflightBytes bounds the memory of the tensors that a puller
	// has requested and not yet handed to its caller. One tensor may always be under way,
	// however large.
	DefaultInflightBytes = 256 << 20

	// leastWeight is what the smallest tensor counts against InflightBytes,
	// for its goroutine and the messages about it. It bounds their number
	// to some thousands.
	leastWeight = 64 << 10

	// maxReaders is how many tensors a Catalog reads from files at once.
	// Solid-state disks reach their speed with about as many requests; more
	// would only hold more memory.
	maxReaders = 8

	// maxStreams is how many pulls a Catalog serves at once. Each costs a
	// goroutine, a stream and what it has of keys to send; a puller beyond
	// it is in a loop or hostile.
	maxStreams = 10_000

	// digestChunk is how much of a file is in memory, per processor, while
	// digests are computed: large enough for the disk, and within a
	// processor's cache.
	digestChunk = 1 << 20

	// maxName bounds the names of publications and tensors in bytes. A key
	// holds both, escaped (three bytes for one at worst), and must fit a
	// message that every gRPC server takes (4 MiB) many times over.
	maxName = 16 << 10

	// maxManifest is the largest manifest in bytes, as a message: about two
	// million tensors. A puller takes none that is larger.
	maxManifest = 256 << 20

	// keysPerMessage bounds the bytes of keys in one message of Open. It is
	// far below 4 MiB, the largest message that a gRPC client takes by
	// default.
	keysPerMessage = 1 << 20

	// maxOpenNames is the largest list of tensors in bytes that an Open
	// names. A longer selection asks for the keys of all: servers take
	// requests up to 4 MiB by default.
	maxOpenNames = 1 << 20

	// suggestions is how many known names an error shows beside one that is
	// not known.
	suggestions = 3

	// causeDelay is how long an error that follows from another one waits
	// for that one to arrive on another way: some round trips.
	causeDelay = time.Second

	// progressEvery is how often progress is reported: often enough for the
	// eye, rarely enough to cost nothing.
	progressEvery = 100 * time.Millisecond

	// maxQuoted is how many bytes of a foreign text an error repeats.
	maxQuoted = 120
)
