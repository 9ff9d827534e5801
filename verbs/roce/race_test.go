//go:build race

package roce

// raceEnabled says that the race detector runs, which allocates.
const raceEnabled = true
