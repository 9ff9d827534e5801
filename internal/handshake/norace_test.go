//go:build !race

package handshake

// searchLimit bounds the worlds of a search. No search reaches it.
const searchLimit = 1_000_000
