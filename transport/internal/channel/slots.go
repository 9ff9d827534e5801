package channel

import "github.com/tryst-rdma/tryst/transport/internal/wire"

// slots are the numbers by which the peer tells with its last write which receive
// it was. One is taken when an address is given out, and free when the transfer
// has ended on the wire. Its generation counts its uses, so that a write that
// comes late is told from one of the next user.
type slots struct {
	of   []slot
	free queue[uint32]
	most int // of them
}

type slot struct {
	generation uint32
	receive    ref // none when the slot is free
}

// take gives r a slot. ok is false when all are taken.
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

// find is the receive that imm is for; none when it fits no open slot.
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
