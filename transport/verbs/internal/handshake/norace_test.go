//go:build !race

package handshake

// searchLimit is how many worlds a search looks at, at most: none is as large.
const searchLimit = 1_000_000
