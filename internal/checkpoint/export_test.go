package checkpoint

import (
	"io/fs"
	"time"

	"github.com/tryst-rdma/tryst/tensor"
)

// PieceBytes is pieceBytes.
const PieceBytes = pieceBytes

// RetryMin is retryMin.
const RetryMin = retryMin

// ChangeTime is changeTime, for tests that order files by it.
func ChangeTime(info fs.FileInfo) time.Time {
	at, _ := changeTime(info)
	return at
}

// With returns a Puller that receives with another Receiver, into memory of an allocator.
func (p *Puller) With(r Receiver, a tensor.Allocator) *Puller {
	o := p.o
	o.Receiver, o.Allocator = r, a
	return NewPuller(o)
}
