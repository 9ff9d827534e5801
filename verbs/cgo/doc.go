// Package libibverbs is the verbs provider over libibverbs: real devices, and
// the kernel's Soft-RoCE. It is the only package that imports "C".
//
// The library (libibverbs.so.1) is opened at run time, so that a program runs
// where it is not installed; its header is looked for at build time, so that a
// program builds where it is not. Without the one or the other, without cgo, on
// another system than Linux, and on a kernel without RDMA, Provider.Devices and
// Provider.Open say so in an error that is verbs.ErrUnavailable and names what to
// install, load or permit.
//
// # The way of a batch
//
//  1. PostSend writes work requests as flat descriptors into the queue pair's
//     ring, memory that it maps and that Go and C both see (shim.h). Inline bytes
//     are copied there too.
//  2. One cgo call makes the library's list of them and posts it.
//  3. Poll lets one cgo call put completions into the ring of its queue, and
//     copies them out as verbs.WC.
//
// PostSendAndPoll does both in one crossing, which costs 35 ns, whatever the
// batch. Posts to one queue are one after another under its lock, and so are the
// polls of one completion queue; nothing else is locked, and nothing is
// allocated. Work requests and completions are copied at each step, so that no
// pointer of Go's is ever held by C.
//
// # Waiting
//
// The descriptors of completion channels and of asynchronous events are
// duplicated, made non-blocking, and wait in Go's poller: a goroutine that waits
// holds no thread, and its context ends it.
//
// # Memory
//
// What RegisterMemory is given must be mapped memory outside the Go heap. The
// package cannot tell cheaply, and does not try: the garbage collector does not
// move Go memory, but gives pages that it has no use for back to the system
// while the device still writes to them.
package libibverbs
