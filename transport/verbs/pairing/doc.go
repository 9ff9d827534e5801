// Package pairing is the bootstrap of a channel as a pure state machine.
package pairing
