//go:build !race

package server

// producedBytes is how much TestProducerStaysWithinItsBound produces.
const producedBytes = 4 << 30
