//go:build !race

package grpctransport

const (
	memoryTestSize = 1 << 30
	raceMemory     = 0
	UnderRace      = false
)
