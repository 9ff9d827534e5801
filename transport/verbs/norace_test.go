//go:build !race

package verbstransport_test

const underRace = false
