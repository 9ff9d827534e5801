//go:build !race

package channel

// searchLimit is how many worlds a search looks at, at most: none is as large.
const searchLimit = 1_000_000
