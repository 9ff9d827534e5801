// Package safetensors reads and writes files of the safetensors format, and
// the index of a checkpoint that is spread over several of them.
//
//	offset  bytes  content
//	0       8      N, the size of the header: little-endian, at most 100 MB
//	8       N      the header: a JSON object in UTF-8, begins with '{', may end in spaces
//	8+N     rest   the tensors' elements, little-endian and row-major
//
// The header maps each tensor's name to its type, shape and place, counted
// from byte 8+N:
//
//	{"__metadata__":{"format":"pt"},"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}}
//
// The tensors cover the rest of the file exactly: no hole, no overlap, nothing
// after the last one. A name stands once; "__metadata__" is no name and holds
// text by text. Fields of a tensor that the format does not define are passed
// over, as by the reference implementation
// (https://github.com/huggingface/safetensors, section "Format").
//
// A type that package tensor lacks (F4, F6_E2M3, F6_E3M2, F8_E8M0) is read and
// written as its bytes: see Packed.
//
// Nothing in a file is trusted: a header is checked as a whole before the
// first tensor can be read, and no count in it makes the reader allocate more
// than a small multiple of the header's own size.
package safetensors

// headerAlignment is what the written header's end, where the data begins, is
// a multiple of: the largest element, as in the reference implementation, so
// that both write the same bytes.
const headerAlignment = 8

// lengthSize is how many bytes the header's size takes.
const lengthSize = 8

// metadataKey is the header's key that is no tensor.
const metadataKey = "__metadata__"
