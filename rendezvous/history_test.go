package rendezvous

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/tryst-rdma/tryst/status"
)

// TestReasonsOfEarlierStepsAreShort: the reasons of many ended steps take little memory, whatever their texts are.
func TestReasonsOfEarlierStepsAreShort(t *testing.T) {
	const steps = 3000
	h := newHistory(steps)
	text := "the node " + strings.Repeat("ä", 1<<10)
	for i := range int64(2 * steps) {
		h.add(i, status.Errorf(status.Aborted, "%s: %w", text, context.Canceled).Derived())
	}
	whole, short := h.find(2*steps-1), h.find(steps)
	if !errors.Is(whole, context.Canceled) || len(whole.Error()) < len(text) {
		t.Errorf("the last one: %v", whole)
	}
	if s := short.Error(); status.CodeOf(short) != status.Aborted || !status.IsDerived(short) || !strings.HasPrefix(s, "Aborted: the node ä") || len(s) > 200 {
		t.Errorf("an earlier one: %v", short)
	}
	sum := 0
	for _, why := range h.why {
		sum += len(why.Message())
	}
	if most := wholeReasons*(status.MaxMessage+100) + steps*(shortText+10); len(h.why) != steps || sum > most {
		t.Errorf("%d steps have texts of %d bytes, want at most %d", len(h.why), sum, most)
	}
	h.add(-1, nil)
	if err := h.find(-1); status.CodeOf(err) != status.Aborted {
		t.Errorf("a cleanup: %v", err)
	}
}
