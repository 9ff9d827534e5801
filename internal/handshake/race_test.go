//go:build race

package handshake

// searchLimit bounds the worlds of a search. The race detector makes the search ten times
// slower, and has nothing to find in one goroutine.
const searchLimit = 1_000
