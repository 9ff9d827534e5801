//go:build race

package progress

// searchLimit is how many states of a game a search looks at, at most. The race
// detector makes it ten times slower, and finds nothing in one goroutine.
const searchLimit = 10_000
