package command

import "time"

const (
	// maxTraceTime is the longest recording that a server makes.
	maxTraceTime = time.Minute
	// maxTraceError is how much of the text of a failed request is shown.
	maxTraceError = 1 << 10
)

const (
	// completionTimeout bounds what a press of the tab key may take when the values come
	// from a server.
	completionTimeout = 2 * time.Second
	// maxCompletions is how many names of tensors are offered: a shell asks before it
	// lists more.
	maxCompletions = 500
)

// clusterPoll is how often the file of --cluster-file is read: soon enough for tasks that come, and little work.
const clusterPoll = time.Second

// addPolls is how many of these in a row have to find a cluster that has all present tasks, and removePolls one that
// lacks some: whoever writes a file line by line may wait for a name between two of them.
const (
	addPolls    = 2
	removePolls = 5
)

// keysTimeout is the default of --timeout for keys: enough for a description of
// millions of tensors over a slow network.
const keysTimeout = 30 * time.Second

// notifyTimeout bounds a report when systemd does not read its socket.
const notifyTimeout = time.Second

// closeTimeout bounds how long a client may take to send its last acks: enough for
// a round trip anywhere, and short if the server is gone.
const closeTimeout = time.Second

// tracesTimeout bounds how long a server may take for its last traces after its shutdown timeout. An
// orchestrator grants some seconds beyond that (deploy/ has 15), and then kills it.
const tracesTimeout = 5 * time.Second

// execGrace is how long the command of --exec may take to end after SIGTERM, before it is killed.
const execGrace = 5 * time.Second
