package graph

import "time"

// The limits of a graph, where ImportOptions names no others. A graph comes from a stranger: each
// of them bounds the memory that a registered graph takes.
const (
	// DefaultMaxNodes is more than the graphs of large models have (tens of thousands). A node takes
	// about 1 KiB beside its definition.
	DefaultMaxNodes = 250_000
	// DefaultMaxEdges bounds the inputs and outputs of all nodes, since one attribute may claim any
	// number of them.
	DefaultMaxEdges = 16 * DefaultMaxNodes
	// DefaultMaxConstantBytes bounds the tensors in attributes, in bytes as tensors: a few bytes of
	// a GraphDef may stand for a tensor of any size, since the last value is repeated.
	DefaultMaxConstantBytes = 4 << 30
)

const (
	// nodeBytes and edgeBytes are what a node, and each of its inputs and outputs, takes for Graph.Bytes.
	nodeBytes = 1024
	edgeBytes = 64
	// minScratch is from how many bytes on the memory that a kernel needs beside its outputs is counted.
	minScratch = 64 << 10
	// maxName is the longest name of a node, in bytes. Names are part of error texts and of
	// rendezvous keys.
	maxName = 4096
	// defaultParallelIterations is TensorFlow's default of the attribute.
	defaultParallelIterations = 10
	// maxParallelIterations is the most iterations of a loop that run at once, whatever the graph says:
	// each holds its values.
	maxParallelIterations = 4096
	// maxState is how many bytes the iterations that run ahead in all loops of a step, and the functions that
	// it calls, may take (held). A loop beyond it goes on with one iteration, a call is refused. It has space for
	// some 100,000 iterations.
	maxState = 512 << 20
	// stateOfIteration, stateOfNode and stateOfInput are what an iteration takes for itself and for each of its nodes,
	// of which some are under way, and inputs, in bytes. stateOfCall is what a call takes beside.
	stateOfIteration = 512
	stateOfNode      = 128
	stateOfInput     = 64
	stateOfCall      = 2048
	// stateStep is the least that such state is reserved by, in the allocator of the step.
	stateStep = 16 << 10
	// stateOfWait is what a kernel that waits takes beside: its context and its receive, and a goroutine when it ends.
	stateOfWait = 1280
	// maxSpare is how many iterations of each loop are kept for the next ones.
	maxSpare = 16
	// maxCallDepth is how deep the calls of functions may be nested when they run. A level takes some
	// kilobytes.
	maxCallDepth = 256
	// maxBodies and maxBodyKey bound the functions for different attributes: a function that
	// calls itself with other attributes has no end. maxBodyKey is in bytes.
	maxBodies  = 10_000
	maxBodyKey = 64 << 10
	// maxDefaults is the largest size of the default values of a function's attributes, in bytes. They are
	// read at each call.
	maxDefaults = 4096
	// maxErrorNodes is the number of nodes that the text about a cycle names.
	maxErrorNodes = 8
)

// turn is how long a worker goes on while others wait for its place. A loop of the graph may have no
// end, and as many of them as there are places would stop all other steps.
const turn = 10 * time.Millisecond
