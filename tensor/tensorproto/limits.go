package tensorproto

import "math"

const (
	// maxMessage is the largest TensorProto that is written: protobuf's limit
	// of 2 GiB − 1, less room for the fields of the message around it.
	maxMessage = math.MaxInt32 - 1<<10

	// protobufLimit is the limit in TensorFlow's error for a tensor that is too large: it
	// counts the bytes of the elements beyond it.
	protobufLimit = 1 << 31

	// DefaultMaxExpand is how many bytes more than its message holds a tensor
	// may take by the rule that the last value of a list repeats: with 20
	// bytes a peer could otherwise ask for all memory. Constants of a graph
	// that are filled with one value are rarely larger; tensors on the wire
	// carry their content.
	DefaultMaxExpand = 64 << 20

	// maxNesting is how deep parsedSize looks into a message. Tensors in variants in
	// tensors are rarely nested at all.
	maxNesting = 16

	// maxDepth is how deep tensors and variants may be nested: protobuf's own limit in C++.
	maxDepth = 100
	// maxCopies and minCopies bound what the parser may copy of lists in parts, in multiples of the
	// message and in bytes beside. Writers of protobuf make no parts.
	maxCopies = 2
	minCopies = 1 << 20

	// MaxHeader is how many bytes of a message are enough for ParseHeader:
	// 254 dimensions take 13 bytes each at most, and the other fields little.
	MaxHeader = 4 << 10
)
