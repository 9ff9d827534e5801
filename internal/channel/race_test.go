//go:build race

package channel

// searchLimit is how many worlds a search looks at, at most. The race detector
// makes it ten times slower, and finds nothing in one goroutine.
const searchLimit = 1_000
