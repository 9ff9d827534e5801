package top

import "time"

const (
	// every is the time between two requests to a process, so that what a process finds within a second and a half shows within two;
	// fetchTimeout bounds one.
	every        = 500 * time.Millisecond
	fetchTimeout = 5 * time.Second
	// maxBody is the largest status that is read: 1,000 peers take 400 KB.
	maxBody = 32 << 20

	// leastWidth and leastHeight are the smallest screen. A smaller one shows what fits.
	leastWidth, leastHeight = 80, 12
	// onceWidth is the width of --once when the output is no terminal, and onceRows the most rows of a table.
	onceRows = 20
	// longWait is a wait that is marked, in seconds.
	longWait = 5
	// maxFilter bounds what is typed.
	maxFilter = 64
)
