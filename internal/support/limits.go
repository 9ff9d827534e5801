package support

import "time"

const (
	// MaxFile bounds a file of the archive: the status of 10,000 peers is 8 MB. The rest is cut off, and the file says so.
	MaxFile = 16 << 20
	// maxAll bounds all files together, before they are compressed.
	maxAll = 128 << 20
	// MaxProcesses bounds the processes that are asked.
	MaxProcesses = 32
	// fetchTimeout bounds a request. A process that hangs may not answer.
	fetchTimeout = 10 * time.Second
	// leastSecret is the length from which on the value of a variable is looked for: shorter ones are words of texts.
	leastSecret = 6
)
