package transport

import (
	"testing"

	"github.com/tryst-rdma/tryst/status"
)

// TestMovedIsMarked: the mark of Moved is found behind the peer's quotation, and in no other error.
func TestMovedIsMarked(t *testing.T) {
	why := status.New(status.Internal, "boom")
	if !IsMoved(Moved(why)) || IsMoved(why) || IsMoved(nil) {
		t.Error("the mark is not what tells an error of Moved")
	}
}
