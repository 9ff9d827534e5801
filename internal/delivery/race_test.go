//go:build race

package delivery

// searchLimit is how many worlds of a configuration a search looks at. The race
// detector makes it ten times slower, and finds nothing in one goroutine.
const searchLimit = 2_000
