package delta

import "time"

// Numbers of the format (PROTOCOL.md section 13). Both sides must have the same.
const (
	// version is the first byte of a delta.
	version = 1

	// blockBytes is how much of the tensor a block covers, in bytes; the last one covers what remains.
	// Two blocks of a tensor and the XOR of both fit the second-level cache of a core.
	blockBytes = 1 << gapBits

	// gapBits is the length of a gap that is too long for the unary part of its code: a block of
	// single bytes has 2^18 elements.
	gapBits = 18

	// maxUnary is the longest unary part of the code of a gap, in bits. A longer one would not fit one
	// 8-byte load with what follows it.
	maxUnary = 24

	// maxDigest is the longest digest, in bytes: SHA-512.
	maxDigest = 64
)

// Numbers of the encoder alone. Others make a larger or slower delta, never a wrong one.
const (
	// maxDense is the share of changed elements, as 1/maxDense, above which a block is not encoded as
	// sparse: the XOR is smaller there, and positions of each element would take long.
	maxDense = 2

	// blockSpot bytes of each blockSample bytes of a plane are looked at before zstd.
	blockSpot   = 64
	blockSample = 1024

	// probeBytes at the beginning of a block show whether it is as dense as the one before.
	probeBytes = 8 << 10

	// minValues is the least length of the values of a sparse block that zstd is tried on, in bytes. Its
	// frame and its table take about 30.
	minValues = 128

	// worthwhile is how much smaller zstd must make something before a receiver has to expand it, as a
	// share of its length: 1/worthwhile.
	worthwhile = 32

	// sampleShare is the share of a tensor that Encode looks at first, as 1/sampleShare, within
	// minSample and maxSample bytes, in spots of spotBytes. A sample must cost far less than 2 % of
	// what sending the tensor takes over the fastest route.
	sampleShare = 1024
	minSample   = 4 << 10
	maxSample   = 32 << 10
	spotBytes   = 512
)

// How fast one core of a server works, in bytes of the tensor a second. They are for the choice
// between a delta and the whole, where a factor of two changes little: routes differ by a hundred.
const (
	speedScan  = 8e9   // finding differences of versions that hardly differ
	speedXOR   = 2.5e8 // XOR and zstd
	speedCopy  = 8e9   // the base to another place
	speedPlane = 8e8   // expanding zstd, and XOR

	perChangeMade  = 30e-9 // seconds for a changed element of a sparse block: finding and encoding it
	perChangeTaken = 10e-9 // the same: applying it
)

// chainShare is how much the deltas of a Chain may take, as a share of the publication:
// 1/chainShare.
const chainShare = 10

// maxSteps is how many versions a Chain goes back. Applying more takes longer than the whole over
// most routes.
const maxSteps = 64

// What a step and a delta in it take beside their bytes, in bytes: a map and its entries.
const (
	stepOverhead  = 256
	deltaOverhead = 128
)

// second is a float64, for rates.
const second = float64(time.Second)
