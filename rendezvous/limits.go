package rendezvous

import "time"

const (
	// shards is the number of shards of a step's table, a power of two. It is
	// much larger than the usual number of keys in use, so that two cores
	// rarely write to one shard. The table of pointers takes 2 KiB and is
	// made by the first Send or Recv of a step. A shard takes 128 bytes and
	// is made when it is first used.
	shards = 256

	// maxFree is the number of queue entries (96 bytes each) that a shard
	// keeps for reuse.
	maxFree = 4

	// fewKeys is the number of keys that a shard keeps in one chain. With
	// more keys it makes at least as many buckets as it has keys. Comparing
	// the hashes of a few keys costs no more than finding a bucket.
	fewKeys = 4

	// shrinkAbove is the largest number of buckets (8 bytes each) that an
	// empty shard keeps. Tables fill and empty often, so a small number is
	// kept.
	shrinkAbove = 256

	// DefaultSendBound is the bound of SendWait. It is several times what an adapter of
	// 400 Gb/s moves until an acknowledgement is back, after 1 ms, and little beside the
	// memory of a host with one.
	DefaultSendBound = 256 << 20

	// recordCost is the least that SendWait counts for a value, so that small and empty values
	// are bounded too: an entry, its key and its Delivery. Larger values count only their
	// memory, so that a bound of n tensors holds n.
	recordCost = 256

	// rememberedSteps is the number of ended steps that a Manager remembers,
	// so that a late receive ends at once. It is the number of request ids
	// that TensorFlow's workers remember to recognise repeated requests, and
	// takes about 5 MB. A receive for an older step waits until its
	// requester cancels it.
	rememberedSteps = 100_000
	// wholeReasons of them have their reason as it was, and the earlier ones the first shortText bytes of its text: in all
	// at most 5 MB and 20 MB more.
	wholeReasons, shortText = 1000, 100

	// abortDelay is the delay of AbortStepLater, the same as in TensorFlow's
	// worker. It lets the root cause reach the client before the errors that
	// follow from it.
	abortDelay = time.Second

	// sinceUnit is the unit of the times of waiting receives, which have 32 bits: seven weeks from the
	// beginning of their step. What waits for longer is shown with that.
	sinceUnit = time.Millisecond

	// shardVisits is how many entries of a shard Manager.Waiting looks at. It holds the lock of the shard
	// meanwhile, for some tens of microseconds at most.
	shardVisits = 1024

	// shownValues is how many keys of values without a receiver Manager.Waiting returns for a step.
	shownValues = 3

	// maxQuoted is the number of bytes of an invalid key that an error
	// quotes. Valid keys are shorter; a hostile peer may send longer ones.
	maxQuoted = 512
)
