//go:build !race

package progress

// searchLimit is how many states of a game a search looks at, at most: no game has
// as many.
const searchLimit = 1 << 30
