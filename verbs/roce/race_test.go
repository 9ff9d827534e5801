//go:build race

package roce

// raceEnabled is set with the race detector, which allocates.
const raceEnabled = true
