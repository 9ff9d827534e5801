package checkpoint

import (
	"os"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// A large tensor can be requested in pieces. So an interruption costs the pieces under way, and not
// the tensor. A puller that writes a file also records each piece that it has written, so that a pull
// that is killed loses little. The content of a piece is a tensor of bytes.

// piece is a range of a tensor's content, in bytes. The zero piece means the whole tensor.
type piece struct{ off, n int64 }

// whole reports whether p means the whole tensor.
func (p piece) whole() bool { return p == piece{} }

func (p piece) end() int64 { return p.off + p.n }

// content is what one request of a puller names: the whole of an entry, or a piece of it.
type content struct {
	*entry
	piece
}

// divisible reports whether pieces of e can be requested: its content lies in memory or in a
// file as it is sent.
func (e *entry) divisible() bool {
	return e.info.DType.Plain() && (e.held != nil || e.file.header != nil || e.file.direct)
}

// pieceAt returns the piece of e at off, one of pieces with size bytes; the zero piece, for all of e, if e is
// not larger than size, or is not divisible, or if size is 0.
func (e *entry) pieceAt(off, size int64) piece {
	if size == 0 || e.info.Bytes <= size || !e.divisible() {
		return piece{}
	}
	return piece{off, min(size, e.info.Bytes-off)}
}

// checkPieceBytes checks the length of pieces that a puller asks for.
func checkPieceBytes(n uint64) error {
	if n%pieceGrid != 0 || n > maxPieceBytes {
		return status.Errorf(status.InvalidArgument, "pieces of %d bytes: the length must be a multiple of %d and at most %d", n, pieceGrid, maxPieceBytes)
	}
	return nil
}

// has reports whether p is a piece that may be requested. Pieces begin and end on the grid,
// or end with the tensor, and are not longer than maxPieceBytes. So the cache has few of them, of a
// useful size, whatever a puller requests.
func (e *entry) has(p piece) bool {
	return e.divisible() && p.off >= 0 && p.off%pieceGrid == 0 && p.n > 0 && p.n <= min(e.info.Bytes-p.off, maxPieceBytes) &&
		(p.n%pieceGrid == 0 || p.end() == e.info.Bytes)
}

// pieceOf returns a tensor over a piece of t and takes over the caller's reference to t.
func pieceOf(t *tensor.Tensor, p piece) (*tensor.Tensor, error) {
	if p.whole() {
		return t, nil
	}
	defer t.Release()
	buf, err := t.Buffer().Slice(int(p.off), int(p.n)) // registered memory stays that
	if err != nil {
		return nil, err
	}
	x, err := tensor.New(tensor.Uint8, tensor.Vector(int(p.n)), buf)
	if err != nil {
		buf.Release()
	}
	return x, err
}

// read reads the content from its file. The caller releases it. An error may be a comparison.
func (c content) read(a tensor.Allocator) (t *tensor.Tensor, err error) {
	if c.whole() {
		return c.entry.read(a)
	}
	info := *c.info
	info.DType, info.Shape, info.Bytes, info.Offset = tensor.Uint8, tensor.Vector(int(c.n)), c.n, info.Offset+c.off
	err = c.file.read(func(r *os.File) (err error) {
		t, err = readPlain(r, &info, a)
		return err
	})
	if err != nil {
		if t != nil {
			t.Release()
		}
		return nil, ofTensor(info.Name, err)
	}
	return t, nil
}
