package checkpoint

import (
	"testing"

	"github.com/tryst-rdma/tryst/tensor"
)

// A piece is not longer than maxPieceBytes, however long its tensor is.
func TestLongPiecesAreRefused(t *testing.T) {
	e := &entry{info: &TensorInfo{DType: tensor.Uint8, Bytes: maxPieceBytes + 5}, file: &file{direct: true}}
	for p, want := range map[piece]bool{
		{0, maxPieceBytes}: true, {maxPieceBytes, 5}: true, {pieceGrid, maxPieceBytes - pieceGrid + 5}: true,
		{0, maxPieceBytes + 5}: false,
	} {
		if got := e.has(p); got != want {
			t.Errorf("the piece of %d bytes at %d: %t", p.n, p.off, got)
		}
	}
}
