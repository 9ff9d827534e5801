package rendezvous

import (
	"strings"

	"github.com/tryst-rdma/tryst/status"
)

// history remembers the steps that ended last. Its owner guards it. It has the whole reason of the last wholeReasons, and of
// earlier ones what a late receive needs: a peer, or a graph with long names, chooses how much memory a reason takes.
type history struct {
	why  map[int64]*status.Error // nil for a step that was cleaned up
	ring []int64                 // in the order in which the steps ended
	next int                     // index of the oldest step once ring is full
	max  int                     // capacity of ring
}

func newHistory(max int) history {
	return history{why: make(map[int64]*status.Error), max: max}
}

// add remembers a step and the reason for its end, nil for a cleanup. It does
// nothing for a step that is remembered already.
func (h *history) add(step int64, why *status.Error) {
	if _, ok := h.why[step]; ok {
		return
	}
	if why != nil && len(why.Message()) > status.MaxMessage {
		why = why.WithMessage(strings.Clone(status.Truncate(why.Message())))
	}
	h.why[step] = why
	if len(h.ring) < h.max {
		h.ring = append(h.ring, step)
	} else {
		delete(h.why, h.ring[h.next])
		h.ring[h.next] = step
		h.next = (h.next + 1) % h.max
	}
	if n := len(h.ring); n > wholeReasons {
		at := h.ring[(h.next+n-1-wholeReasons)%n]
		h.why[at] = shortReason(h.why[at])
	}
}

// shortReason returns the code and the beginning of the text of a reason, without what it wraps.
func shortReason(why *status.Error) *status.Error {
	if why == nil {
		return nil
	}
	text := why.Message()
	if len(text) > shortText {
		text = strings.ToValidUTF8(text[:shortText], "") + "…"
	}
	short := status.New(why.Code(), strings.Clone(text)).WithKind(status.KindOf(why))
	if status.IsDerived(why) {
		short = short.Derived()
	}
	return short
}

// find returns the reason for the end of a step, nil when it is not remembered.
func (h *history) find(step int64) error {
	switch why, ok := h.why[step]; {
	case !ok:
		return nil
	case why == nil:
		return errCleanup(step)
	default:
		return why
	}
}

func errCleanup(step int64) *status.Error {
	return status.Errorf(status.Aborted, "Cleanup %d", step).Derived().WithKind(status.ErrStepEnded)
}
