package verbstransport

import (
	"errors"
	"strings"
	"testing"
)

// TestNoReasonIsWords: the error of a peer without a channel says so in words when no attempt has failed.
func TestNoReasonIsWords(t *testing.T) {
	if text := whyNot(nil); strings.Contains(text, "nil") || !strings.Contains(text, "under way") {
		t.Errorf("got %q", text)
	}
	if text := whyNot(errors.New("no device")); text != "no device" {
		t.Errorf("got %q", text)
	}
}
