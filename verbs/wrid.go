package verbs

import "fmt"

// WRID identifies a work request; its completion returns it. Providers do not interpret
// it. Its user encodes table indices and a generation in it, never a pointer:
//
//	bits 63..44  channel     index of the connection in the user's table
//	bits 43..28  generation  of that connection; completions of an earlier one are stale
//	bits 27..4   slot        index in the connection's table for the kind
//	bits  3..0   kind        which table; the user defines the kinds
type WRID uint64

// Exclusive upper limits of the parts of a WRID.
const (
	MaxWRChannel    = 1 << 20
	MaxWRGeneration = 1 << 16
	MaxWRSlot       = 1 << 24
	MaxWRKind       = 1 << 4
)

// NewWRID encodes a WRID. Each part is taken modulo its limit: callers keep channels and
// slots within the limits, and generations wrap.
func NewWRID(channel, generation, slot uint32, kind uint8) WRID {
	return WRID(channel%MaxWRChannel)<<44 | WRID(generation%MaxWRGeneration)<<28 |
		WRID(slot%MaxWRSlot)<<4 | WRID(kind%MaxWRKind)
}

// Channel returns the index of the connection.
func (id WRID) Channel() uint32 { return uint32(id >> 44) }

// Generation returns the low 16 bits of the connection's generation.
func (id WRID) Generation() uint32 { return uint32(id>>28) % MaxWRGeneration }

// Slot returns the index in the table of its kind.
func (id WRID) Slot() uint32 { return uint32(id>>4) % MaxWRSlot }

// Kind returns the kind of the work request.
func (id WRID) Kind() uint8 { return uint8(id % MaxWRKind) }

func (id WRID) String() string {
	return fmt.Sprintf("channel %d generation %d slot %d kind %d", id.Channel(), id.Generation(), id.Slot(), id.Kind())
}
