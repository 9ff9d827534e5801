// Package tensortest helps to test code that uses tensors. It has an Allocator
// that finds leaked buffers and writes after a release, tensors of every type
// with random elements, and comparison.
//
// docs/leaks.md explains how to test a program that uses Tryst for leaked buffers
// and goroutines.
package tensortest
