//go:build race

package verbstransport_test

// underRace reports that the race detector runs.
const underRace = true

// largest is MaxSize of most suites. The race detector checks each byte, and TestSuite
// transfers larger tensors.
const largest = 4 << 20
