package wiresize

// The numbers of this package, with their reasons.
const (
	// maxDepth is how deep messages may be nested: protobuf's own limit in C++, and so TensorFlow's.
	maxDepth = 100

	// maxGrowth and minGrowth bound what a message may take when it is parsed, in multiples of its bytes
	// and in bytes beside: 2 to 10 times for graphs and manifests, and more for lists of empty strings,
	// which minGrowth has space for.
	maxGrowth = 12
	minGrowth = 64 << 20

	// grown is what an element of a slice or map takes at most, in multiples of its size: a slice that
	// grows has up to twice its elements, and those that it was copied from are not collected yet.
	grown = 3

	// unknownFactor is what unknown fields take in multiples of their size: they are kept in one slice.
	unknownFactor = 3

	// mapHeader, mapGroup and mapEntry are what Go's maps take: a header, groups of 8 slots with a
	// control word, and what the parser allocates for an entry, in bytes.
	mapHeader = 64
	mapGroup  = 8
	mapEntry  = 16

	// present is what a field takes that may be absent: a pointer to its value, or the struct of an
	// alternative, in bytes.
	present = 32
)
