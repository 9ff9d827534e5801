// Package tensortest helps to test code that handles tensors: an Allocator
// that finds leaks and late writes, tensors of every type with random
// content, and comparison.
package tensortest
