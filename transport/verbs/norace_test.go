//go:build !race

package verbstransport_test

const underRace = false

// largest is MaxSize of most suites.
const largest = 64 << 20
