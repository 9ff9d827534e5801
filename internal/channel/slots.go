package channel

import "github.com/tryst-rdma/tryst/internal/wire"

// slots are the numbers in immediate data that identify a receive (PROTOCOL.md section
// 8.5). One is taken when its destination is sent, and freed when no write for it can
// arrive any more. The generation counts the uses of a slot: a late write with an old
// generation is detected.
type slots struct {
	of   []slot
	free queue[uint32]
	most int // slots
}

type slot struct {
	generation uint32
	receive    ref // none when the slot is free
}

// take assigns a slot to r. ok is false when all are taken.
func (s *slots) take(r ref) (imm wire.Imm, ok bool) {
	if s.free.n == 0 {
		if len(s.of) == s.most {
			return 0, false
		}
		s.free.push(uint32(len(s.of))) //nolint:gosec // at most wire.Slots
		s.of = append(s.of, slot{receive: none})
	}
	n := s.free.pop()
	at := &s.of[n]
	at.generation = (at.generation + 1) % wire.SlotGenerations
	at.receive = r
	return wire.NewImm(n, at.generation), true
}

// find returns the receive that has the slot of imm, none when imm matches no open slot.
func (s *slots) find(imm wire.Imm) ref {
	n := imm.Slot()
	if int(n) >= len(s.of) || s.of[n].generation != imm.Generation() {
		return none
	}
	return s.of[n].receive
}

func (s *slots) release(imm wire.Imm) {
	s.of[imm.Slot()].receive = none
	s.free.push(imm.Slot())
}
