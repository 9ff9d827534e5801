//go:build !race

package delivery

// searchLimit is how many worlds of a configuration a search looks at: all.
const searchLimit = exhaustive
