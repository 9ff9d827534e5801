//go:build race

package progress

// searchLimit bounds the states of a search. The race detector makes the search ten times
// slower, and has nothing to find in one goroutine.
const searchLimit = 10_000
