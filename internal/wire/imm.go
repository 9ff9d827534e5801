package wire

import "fmt"

// Imm is the immediate data of the last write of a content on each rail:
//
//	bits 31..12  slot        index at the requester
//	bits 11..0   generation  how often the slot was taken, modulo 2¹²
//
// It is in host byte order here. Devices convert it to big-endian.
type Imm uint32

// Slots and SlotGenerations are the numbers of different slots and generations.
const (
	Slots           = 1 << 20
	SlotGenerations = 1 << 12
)

// NewImm encodes a slot and a generation, modulo their limits.
func NewImm(slot, generation uint32) Imm {
	return Imm(slot%Slots)<<12 | Imm(generation%SlotGenerations)
}

// Slot returns the index of the slot.
func (i Imm) Slot() uint32 { return uint32(i) >> 12 }

// Generation returns how often the slot was taken, modulo SlotGenerations.
func (i Imm) Generation() uint32 { return uint32(i) % SlotGenerations }

func (i Imm) String() string { return fmt.Sprintf("slot %d generation %d", i.Slot(), i.Generation()) }
