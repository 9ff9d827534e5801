//go:build race

package grpctransport

// Under the race detector a byte of memory costs several.
const (
	memoryTestSize = 64 << 20
	raceMemory     = 512 << 20
	UnderRace      = true
)
