//go:build race

package verbstransport_test

// underRace says that the race detector runs.
const underRace = true
