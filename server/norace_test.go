//go:build !race

package server

// producedBytes is how much TestProducerStaysWithinItsBound produces.
const producedBytes = 4 << 30

// raceMemory is what the race detector takes in TestAnswersOfAHostileServerAreBounded.
const raceMemory = 0
