package wire

import "fmt"

// Imm is what comes with the last write on each rail of a content:
//
//	bits 31..12  slot        in the table of the side that is written to
//	bits 11..0   generation  of that slot, which counts its uses and wraps
//
// It is a number here. Devices carry it big-endian.
type Imm uint32

// Slots and SlotGenerations are the limits of the parts.
const (
	Slots           = 1 << 20
	SlotGenerations = 1 << 12
)

// NewImm puts an Imm together. Bits without room are cut off.
func NewImm(slot, generation uint32) Imm {
	return Imm(slot%Slots)<<12 | Imm(generation%SlotGenerations)
}

// Slot is the index of the slot.
func (i Imm) Slot() uint32 { return uint32(i) >> 12 }

// Generation is the low 12 bits of how often the slot was taken.
func (i Imm) Generation() uint32 { return uint32(i) % SlotGenerations }

func (i Imm) String() string { return fmt.Sprintf("slot %d generation %d", i.Slot(), i.Generation()) }
