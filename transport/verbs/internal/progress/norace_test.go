//go:build !race

package progress

// searchLimit bounds the states of a search. No game has as many.
const searchLimit = 1 << 30
