package library

// DefaultBlocking is the default of Options.Blocking: kernels that may wait and run at once. A ps of
// synchronous training has one for each variable, and one for each worker.
const DefaultBlocking = 1024

// maxBlocking is how many of them run at once in all States. Each has a thread, and Go ends a process that has
// more than 10,000.
const maxBlocking = 4096

// maxHeader is the longest header of a message between this process and that of the kernels, in bytes. It
// bounds what a broken process may make this one allocate.
const maxHeader = 1 << 30

// maxKept is how many functions of lasting nodes stay in a session without a graph that has them. A
// client may register graphs and drop them for as long as it likes; a function takes some tens of
// kilobytes, and an object what the client has put into it.
const maxKept = 1024

// maxCopied is the largest Const, in bytes, that is copied into each subgraph that uses it.
const maxCopied = 4 << 10

// maxSymbols bounds the sets of one graph, by the number of their symbols: a stranger's graph may have as many
// different sets as nodes, each as large as the graph.
const maxSymbols = 64 << 20

// keptBytes and keptLines bound what is kept of the output of the kernel process, for the error when it ends.
const (
	keptBytes = 4 << 10
	keptLines = 4
)
