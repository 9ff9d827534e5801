package server

import "time"

const (
	// maxNameTries is how many tasks a client draws. They have 31 random bits, so even two
	// in a row that are in use point to another fault.
	maxNameTries = 4
	// helloTimeout bounds the check whether a task is in use, for a server whose host
	// drops packets.
	helloTimeout = 300 * time.Millisecond
)

// transferLog is how many transfers the log of a process holds. The oldest are forgotten.
const transferLog = 1024

// kernelGrace is how long stopWorker waits for kernels when its context has ended. Kernels that
// wait return at once then, and a session takes up to a second to close its peers.
const kernelGrace = 2 * time.Second

// printedLines is how many texts of nodes are logged in a minute, as many as the lines about all ends of pulls.
const printedLines = 300
