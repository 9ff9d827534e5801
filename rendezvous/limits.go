package rendezvous

import "time"

const (
	// shards is how many parts a step's table has, a power of two. With many
	// more parts than keys in use, two cores rarely write to one part: for
	// two goroutines with 64 keys each, 64 parts gave no gain over one
	// goroutine, 256 a gain of 1.8. Parts (128 bytes) are made when they are
	// first used; until then one costs a pointer, in a table of 2 KiB that
	// the first Send or Recv of a step makes.
	shards = 256

	// maxFree is how many queue entries (96 bytes each) a part keeps for
	// reuse: enough for the keys of a part that come and go.
	maxFree = 4

	// fewKeys is how many keys a part keeps in one chain before it makes
	// buckets: comparing the hashes of a few costs no more than finding a
	// bucket. With more keys there is a bucket for each.
	fewKeys = 4

	// shrinkAbove is the number of buckets (8 bytes each) from which a part
	// gives them up when it has become empty. Below it they are kept, since
	// tables empty and fill all the time.
	shrinkAbove = 256

	// rememberedSteps is how many steps that are over a Manager remembers,
	// so that a receive that comes late ends at once. It equals the window
	// in which TensorFlow's workers recognise repeated requests, and takes
	// about 5 MB when full. A receive for an older step is held until its
	// asker gives up.
	rememberedSteps = 100_000

	// abortDelay is how long AbortStepLater waits, as TensorFlow's worker
	// does: the root cause may so reach the client before the errors that
	// follow from it.
	abortDelay = time.Second

	// maxQuoted is how many bytes of a key that does not parse an error
	// shows: keys are shorter, a hostile peer's text may not be.
	maxQuoted = 512
)
