//go:build !race

package verbstransport_test

const underRace = false

// largest is MaxSize of the suites over variants of a transport.
const largest = 64 << 20
