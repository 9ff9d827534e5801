package worker

import "time"

// Limits bound what masters can make a worker hold. A field that is 0 has its default.
type Limits struct {
	// Sessions is how many worker sessions there may be (max-sessions).
	Sessions int
	// Graphs is how many graphs a session may have registered (max-graphs).
	Graphs int
	// GraphBytes bounds the serialised graphs that a session has registered, in bytes
	// (max-graph-bytes).
	GraphBytes int64
	// SessionBytes bounds what the graphs of a session take when they are ready to run, in bytes
	// (max-session-bytes).
	SessionBytes int64
	// Steps is how many steps of a session may run at once (max-running-steps).
	Steps int
}

// The defaults of Limits.
const (
	// DefaultSessions is far above what a master needs, which has one for each of its clients.
	DefaultSessions = 256
	// DefaultGraphs: a client registers one graph for each set of feeds and fetches that it
	// runs.
	DefaultGraphs = 4096
	// DefaultGraphBytes has space for models whose constants are in the graph. A graph takes
	// several times as much memory when it is ready to run.
	DefaultGraphBytes = 512 << 20
	// DefaultSessionBytes is eight times that, and as much as one graph may have constants
	// (graph.DefaultMaxConstantBytes).
	DefaultSessionBytes = 4 << 30
	// DefaultSteps: a step that waits holds some goroutines and its tensors.
	DefaultSteps = 1024
)

const (
	// recentWindow is how many request ids are remembered, as in TensorFlow's worker.
	recentWindow = 100_000

	// maxCompiling is how many graphs of all sessions are made ready to run at once. One takes a second
	// at the limits of package graph, and some hundred MiB.
	maxCompiling = 8

	// sampleSteps: the kernels of one step in so many are counted.
	sampleSteps = 64

	// maxLogged, maxRecorded and maxTimeline bound the records of the log of transfers, of a
	// recording and of a response with a timeline.
	maxLogged   = 1 << 16
	maxRecorded = 1 << 18
	maxTimeline = 1 << 18

	// What the records take in bytes, about: recordBytes for one and its event in a trace, outputBytes for an
	// output of a kernel and dimBytes for a dimension of it, stepBytes for a step and deviceBytes for a device of it.
	recordBytes, outputBytes, dimBytes = 352, 352, 96
	stepBytes, deviceBytes             = 512, 128
	// reserveStep is how many bytes are reserved for records at a time.
	reserveStep = 64 << 10
	// maxOutputs bounds the outputs of a kernel that a record has, and maxLabel each text of its label in bytes.
	maxOutputs, maxLabel = 256, 1024
	// costBytes is what the costs of a node take in a response, with its inputs and outputs.
	costBytes = 1 << 10

	// logIdle: without a request that enables it or fetches from it for so long the log of
	// transfers ends, whose master may have died. It is longer than steps take.
	logIdle = 15 * time.Minute

	// abandonedAfter is how long a step that was cancelled waits for its CleanupGraph. A master
	// that lives sends it as soon as all workers have ended the step.
	abandonedAfter = 10 * time.Second

	// maxRested is how many steps of a session may have run and wait for their CleanupGraph. A
	// master sends it after each step. The oldest is cleaned up beyond this, or beyond
	// max-running-steps if that is more.
	maxRested = 4096

	// sessionIdle: a session that its master has not used for so long ends when a new one needs its
	// place. Its master may have died. The master of a person who works with it may pause for a
	// night.
	sessionIdle = 24 * time.Hour

	// closeWait is how long the end of a session waits for the acknowledgements that its
	// peers are sent. Without them a peer keeps its responses until the end of the step.
	closeWait = time.Second
)

func (l Limits) withDefaults() Limits {
	if l.Sessions == 0 {
		l.Sessions = DefaultSessions
	}
	if l.Graphs == 0 {
		l.Graphs = DefaultGraphs
	}
	if l.GraphBytes == 0 {
		l.GraphBytes = DefaultGraphBytes
	}
	if l.SessionBytes == 0 {
		l.SessionBytes = DefaultSessionBytes
	}
	if l.Steps == 0 {
		l.Steps = DefaultSteps
	}
	return l
}
