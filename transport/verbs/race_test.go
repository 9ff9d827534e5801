//go:build race

package verbstransport_test

// underRace says that the race detector runs.
const underRace = true

// largest is MaxSize of most suites. The race detector watches each byte, and
// TestSuite moves larger tensors already.
const largest = 4 << 20
