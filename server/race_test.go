//go:build race

package server

// producedBytes is how much TestProducerStaysWithinItsBound produces. With the race detector
// the endpoint in Go and gRPC are ten times slower.
const producedBytes = 512 << 20

// raceMemory is what the detector takes in TestAnswersOfAHostileServerAreBounded, in bytes.
const raceMemory = 1 << 30
