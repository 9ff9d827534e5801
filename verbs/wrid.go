package verbs

import "fmt"

// WRID is what a work request carries and its completion brings back. It is an
// index into tables with a generation to tell a stale one, never a pointer:
//
//	bits 63..44  channel     index of the connection in its owner's table
//	bits 43..28  generation  of that connection; completions of an earlier one are stale
//	bits 27..4   slot        of what was posted, in the connection's table for its kind
//	bits  3..0   kind        which table; its owner names the kinds
type WRID uint64

// Limits of the parts of a WRID: each is below its limit.
const (
	MaxWRChannel    = 1 << 20
	MaxWRGeneration = 1 << 16
	MaxWRSlot       = 1 << 24
	MaxWRKind       = 1 << 4
)

// NewWRID puts a WRID together. Bits of a part that has no room are cut off:
// callers number channels and slots within the limits, and generations wrap.
func NewWRID(channel, generation, slot uint32, kind uint8) WRID {
	return WRID(channel%MaxWRChannel)<<44 | WRID(generation%MaxWRGeneration)<<28 |
		WRID(slot%MaxWRSlot)<<4 | WRID(kind%MaxWRKind)
}

// Channel is the index of the connection.
func (id WRID) Channel() uint32 { return uint32(id >> 44) }

// Generation is the low 16 bits of the connection's generation.
func (id WRID) Generation() uint32 { return uint32(id>>28) % MaxWRGeneration }

// Slot is the index in the table that Kind names.
func (id WRID) Slot() uint32 { return uint32(id>>4) % MaxWRSlot }

// Kind says what was posted.
func (id WRID) Kind() uint8 { return uint8(id % MaxWRKind) }

func (id WRID) String() string {
	return fmt.Sprintf("channel %d generation %d slot %d kind %d", id.Channel(), id.Generation(), id.Slot(), id.Kind())
}
