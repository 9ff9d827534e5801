package checkpoint

import (
	"time"

	"github.com/tryst-rdma/tryst/internal/idle"
)

// The numbers of this package, with their reasons. Those that an operator may
// change are defaults of options.
const (
	// DefaultCacheBytes is how many bytes of the files' content stay in memory for the next
	// puller while there are several, in addition to the tensors that pullers hold: about the distance between
	// pullers that started together. It is not larger, since the kernel caches files, too;
	// copying from its cache into used memory is faster than touching new memory.
	DefaultCacheBytes = 256 << 20

	// DefaultCacheTime is how long content stays in the cache without use: longer than the
	// distance between pullers that started together. After that the kernel's cache has it,
	// which other processes can get the memory of.
	DefaultCacheTime = 2 * idle.DefaultTime

	// cacheSweeps is how often unused content is looked for in that time.
	cacheSweeps = 4

	// DefaultInflight is how many tensors or pieces a puller receives at once: one is sent, one is
	// checked, and the sender reads the next ones from its disk. More would only need more
	// memory.
	DefaultInflight = 4

	// DefaultInflightBytes bounds the memory of the tensors that a puller has requested and
	// not delivered. One tensor of any size is always permitted.
	DefaultInflightBytes = 256 << 20

	// leastWeight is the least that a tensor counts against InflightBytes, in bytes, for its
	// goroutine and its messages. It bounds their number to some thousands.
	leastWeight = 64 << 10

	// DefaultSettle is how long a file that may still be written must not change before it is
	// taken: some times the interval at which a slow copy writes, and short for a person who
	// waits. Looking at a thousand files that often costs nothing.
	DefaultSettle = 2 * time.Second

	// refusedPause is how long files that could not be taken are left alone. Reading them again
	// costs at least the reading of their headers.
	refusedPause = 30 * time.Second

	// linger is how long a version that was replaced stays after its last pull, at least. In that
	// time a pull whose connection broke comes back for the rest.
	linger = time.Minute

	// maxHeld is how many versions of a name are in memory at once: one that pullers finish, and the next.
	maxHeld = 2

	// DefaultReplacedPulls is how long pulls of a version in memory may go on when another one has taken its place:
	// as long as trainers usually need for the next one.
	DefaultReplacedPulls = time.Minute

	// comeBack is how long a replaced version in memory waits after its last pull, in case that its connection broke:
	// some pauses of the first attempts (retryMin).
	comeBack = 2 * time.Second

	// aliveEvery is the interval at which the puller of a replaced version is asked whether it is there, and
	// aliveWithin how long nothing may come from it: longer than the pauses of a garbage collector or of a busy machine,
	// and as long as the break of a channel takes. lookEvery is how exact that is.
	aliveEvery  = 2 * time.Second
	aliveWithin = 5 * time.Second
	lookEvery   = time.Second

	// leaveWithin is how long a puller that is heard may read on after its version is gone, and not end its stream. Over
	// a slow link the notice waits behind what was sent before.
	leaveWithin = 15 * time.Second

	// maxWatchers is how many streams of Watch a Catalog serves at once. Each needs a goroutine and a stream.
	maxWatchers = 10_000

	// rejoinWithin is how long a watcher may take for the next stream, which says what it has got. It opens that at once.
	rejoinWithin = time.Second

	// maxBehind is how many versions back it is counted how far a watcher is behind.
	maxBehind = 64

	// bufferedSets is how many versions a watcher has memory for: the one that its caller has, and the next.
	bufferedSets = 2

	// maxEpochs is how many lives of a publication a watcher remembers, to notice two servers at one address.
	maxEpochs = 64

	// pollEvery is the interval at which a watcher lists the publications of a server that cannot announce them.
	pollEvery = time.Second

	// minVersionName and maxVersionName bound the version in the name of a directory, in bytes: a version has 16, one of
	// SHA-256 would have 64. What is shorter is somebody else's directory, such as one with a date.
	minVersionName = 16
	maxVersionName = 128

	// announceEvery is the least interval between two announcements to one watcher: far below the time of a pull, and
	// so long that a publisher with a thousand versions a second costs nothing.
	announceEvery = 20 * time.Millisecond

	// maxReaders is how many tensors a Catalog reads from files at once. Solid-state disks
	// reach their full speed with about as many requests; more would only need more memory.
	maxReaders = 8

	// maxStreams is how many pulls a Catalog serves at once. Each needs a goroutine, a stream
	// and the keys that it still has to send. More pulls mean a faulty or hostile puller.
	maxStreams = 10_000

	// maxPulledNames is how many publications have a count of pulled bytes of their own. Each is a series of
	// tryst_pulled_bytes_total; more than 200 are of a program that uses a new name for each version.
	maxPulledNames = 200

	// maxEndedLines is how many pulls have a line at INFO when they end, in endedPause: enough for a rollout to
	// some hundred hosts, and less than 200 MB a day with usual names, 800 MB with the longest ones. One address has maxEndedLinesOfSource of them, so that a
	// client that ends pulls in a loop does not hide those of others.
	maxEndedLines         = 300
	maxEndedLinesOfSource = 30
	endedPause            = time.Minute

	// maxTaskName bounds the names of tasks that callers say, in bytes: lines of the log, what a status shows, and what is known
	// of those that take deltas have them. A name in a cluster is far shorter, and that of a device may be as long.
	maxTaskName = 1024

	// digestChunk is how many bytes of a file are in memory, per processor, while digests are
	// computed: large enough for the disk, small enough for a processor's cache.
	digestChunk = 1 << 20

	// maxName bounds the names of publications and tensors in bytes. A key has both, escaped
	// to up to three times their length, and many keys must fit into a message of gRPC's
	// default limit, 4 MiB.
	maxName = 16 << 10

	// maxManifest is the largest manifest that a puller accepts, in bytes as a message: about
	// two million tensors.
	maxManifest = 256 << 20

	// keysPerMessage bounds the bytes of keys in one message of Open, if it has several. It is about what
	// gRPC takes of a stream whose client does not read, so that such a client makes the server build no more
	// than two messages, and far below 4 MiB, the default limit of a gRPC client.
	keysPerMessage = 64 << 10
	// messageHead is what a message of Open takes beside its keys, and keyHead what a key takes at most in it beside
	// the name and the strings of the key, in bytes: tags, lengths, and the numbers of a piece.
	messageHead, keyHead = 16, 96

	// maxKeyRest is how long a key may be beside the names in it, in bytes: two devices, whose names may have 1,024 bytes each,
	// and numbers. A pull keeps the keys that a server gives.
	maxKeyRest = 2*1024 + 256

	// maxOpenNames is the largest list of tensor names in an Open, in bytes. For a longer list
	// the puller requests the keys of all tensors. The default limit of a gRPC server is 4 MiB.
	maxOpenNames = 1 << 20

	// DefaultRetry is how long a pull tries to go on without progress: a server needs some
	// seconds to restart, and a switch up to a minute.
	DefaultRetry = time.Minute

	// retryMin and retryMax bound the pause before a pull tries again, on average: soon after
	// a broken connection, and not so often that many pullers load a server that starts.
	retryMin = 100 * time.Millisecond
	retryMax = 2 * time.Second

	// leastPatience is how long a server has to answer a question during an outage, however
	// short the rest of the outage is: longer than a connection needs (connectMax of
	// transport/grpc).
	leastPatience = 20 * time.Second

	// firstPatience is how long a server has at least to answer a question or to send the next part
	// before that is a failure, however short the request's Retry is: longer than a silent connection
	// lives with the default keepalive, which has the better reason.
	firstPatience = time.Minute

	// slowestRate, in bytes a second, is the rate at which parts come at least after that time: 8 Mbit/s.
	// slowestMax bounds the time that a size can claim.
	slowestRate = 1 << 20
	slowestMax  = 24 * time.Hour

	// comparedRate, in bytes a second, is how fast a server reads touched files at least before it
	// gives the keys, or the next part: a hard disk. comparedMax bounds the time that a size can
	// claim.
	comparedRate = 128 << 20
	comparedMax  = time.Hour

	// pieceBytes is the length of the pieces in which a pull requests large tensors: large compared
	// with the cost of a message, and so small that those under way at both ends fit into a
	// processor's cache, and that checking and writing begin soon and end soon after the last one.
	pieceBytes = 4 << 20

	// resentBytes is how many bytes of files a pull may have requested and not yet recorded
	// in the journal. Only these are sent again after the process was killed.
	resentBytes = 64 << 20

	// writebackBytes is how many bytes of a file are written to the kernel's cache before the disk
	// begins with them: large enough for the full speed of a disk, and small compared with what the
	// sync at the end may wait for.
	writebackBytes = 8 << 20

	// maxReserved is how much disk the files of a pull reserve ahead of what has come, in bytes: a server
	// that claims much fills no disk with it. reserveStep is reserved at once: large, so that a file has
	// few extents.
	maxReserved = 1 << 30
	reserveStep = 256 << 20

	// maxJournalLine bounds a line of a journal in bytes: a plan, whose name of a publication
	// may take six times its length in JSON.
	maxJournalLine = 8 * maxName

	// pieceGrid is the unit of a piece's offset and length in bytes: large enough for a disk
	// to read at its full speed.
	pieceGrid = 1 << 20

	// maxPieceBytes is the largest piece in bytes, in Open and in a key. It bounds the memory of one
	// request.
	maxPieceBytes = 1 << 30

	// intoWait is how long a session waits until no peer can write any more to memory that an
	// earlier session received a part into: three times the longest time in quarantine. intoPause is
	// the longest pause between two looks.
	intoWait  = 30 * time.Second
	intoPause = 100 * time.Millisecond

	// maxCompared is how many bytes of known names are looked at for an error about an unknown one: those of
	// some ten thousand tensors. Any caller may ask for unknown names.
	maxCompared = 1 << 20

	// suggestions is how many known names an error about an unknown name shows.
	suggestions = 3

	// causeDelay is how long a derived error waits for its cause, which arrives on another
	// stream: some round trips.
	causeDelay = time.Second

	// progressEvery is the interval of progress reports: short enough for a person, long
	// enough to cost nothing.
	progressEvery = 100 * time.Millisecond

	// maxQuoted is how many bytes of a peer's text an error shows.
	maxQuoted = 120
)

// Deltas of publications.
const (
	// wantedVersions is for how many versions a watcher that has taken one counts as one that wants deltas: a slow one
	// skips versions. maxWants is how many watchers are remembered for it; the slowest of the last ones decides.
	wantedVersions = 8
	maxWants       = 64

	// receiveBytes is what a receive takes beside its content, in bytes: the key in the request and in the answer, and what
	// gRPC adds to both. Over channels it is less, where it matters less. tripMost bounds what a puller says of a round trip.
	receiveBytes = 600
	tripMost     = 10 * time.Second

	// tripShare is how much a longer round trip counts, as 1/tripShare: servers pause, and routes change rarely.
	tripShare = 8

	// deltasWithin bounds how long the deltas of one version are made, and so how long they hold the version before. What is
	// not made by then is sent whole. In this time a core finds the changes of some 30 GB.
	deltasWithin = 10 * time.Second

	// deltaShare is the share of a publication, as 1/deltaShare, that its kept deltas may take, with those that are being
	// made: as much again as a delta.Chain alone.
	deltaShare = 5

	// deltaScratch is how many bytes of memory are kept from making one delta to the next. A longer delta takes what it
	// needs, and gives it back before the next one.
	deltaScratch = 1 << 20

	// maxDeltaSteps is how many deltas a puller applies, one after the other, to get a tensor: as many as a delta.Chain has,
	// and the newest one.
	maxDeltaSteps = 65

	// brokenDeltas is how many sessions of a pull may fail while deltas are taken, before the rest comes whole: a delta may be
	// what breaks them.
	brokenDeltas = 3

	// maxDeltaDigest is the longest digest of a tensor in an offer, in bytes.
	maxDeltaDigest = 64

	// leastMeasured is how many bytes must have come before the rate of a pull says something about the route. Fewer are
	// a matter of round trips.
	leastMeasured = 1 << 20
)
