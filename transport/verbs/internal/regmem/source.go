package regmem

import (
	"sync/atomic"

	"github.com/tryst-rdma/tryst/tensor"
)

// Source is memory that a device reads a tensor's content from, with a reference
// that the transport keeps until every work request that names it has completed
// or its queue pair is destroyed. The zero value is none.
type Source struct {
	Piece
	buf *tensor.Buffer
}

// Release gives the reference up, once.
func (s Source) Release() { s.buf.Release() }

// Buffer is the memory, with the reference that is s's own.
func (s Source) Buffer() *tensor.Buffer { return s.buf }

// IsZero reports whether s is no source.
func (s Source) IsZero() bool { return s.buf == nil }

// Find returns where data lies in registered memory, when all of it does: data is
// memory of buf, to which the caller holds a reference as long as it uses the
// piece. Memory of both pools is found, so that a tensor that came in can go out
// again.
func (m *Memory) Find(buf *tensor.Buffer, data []byte) (Piece, bool) {
	b, ok := buf.Owner().(*block)
	if !ok || len(data) == 0 {
		return Piece{}, false
	}
	if p := b.arena.pool; p != &m.sending && p != &m.receiving || p.closed.Load() {
		return Piece{}, false
	}
	all := b.bytes()
	if &all[0] == &data[0] && cap(data) <= len(all) { // a tensor's: it has no room behind its end
		return b.piece(0, len(data)), true
	}
	// What can grow to the end of the block begins so far from it; that is a
	// guess until the addresses agree. Then all of data is in the block, since
	// its capacity is. Another slice from the middle is copied.
	at := len(all) - cap(data)
	if at < 0 || at >= len(all) || &all[at] != &data[0] {
		return Piece{}, false
	}
	return b.piece(at, len(data)), true
}

// Source returns where the device reads data from: where it lies when that is
// registered memory, else a copy in the sending pool. data is memory of buf. The
// source has a reference of its own; the caller's stays the caller's. Errors: as
// of Copy.
func (m *Memory) Source(buf *tensor.Buffer, data []byte, grow Grow) (Source, error) {
	if p, ok := m.Find(buf, data); ok {
		return Source{Piece: p, buf: buf.Retain()}, nil
	}
	return m.Copy(data, grow)
}

// Copy returns a copy of data (at least 1 byte) in the sending pool. Errors:
// ErrMustGrow with NoGrow, ResourceExhausted when the pool is at its limit.
func (m *Memory) Copy(data []byte, grow Grow) (Source, error) {
	b, err := m.sending.take(len(data), grow)
	if err != nil {
		return Source{}, err
	}
	return m.copyInto(b, data), nil
}

func (m *Memory) copyInto(b *block, data []byte) Source {
	buf := b.buffer(len(data))
	copy(buf.Bytes(), data)
	m.copies.Add(1)
	m.copiedBytes.Add(int64(len(data)))
	return Source{Piece: b.piece(0, len(data)), buf: buf}
}

// Share is what one peer has of the sending pool in copies. Its zero value is empty.
type Share struct {
	held atomic.Int64 // bytes
}

// Release takes a copy of n bytes out of the share, when its source is released. It does
// not block.
func (s *Share) Release(n int64) { s.held.Add(-n) }

// Stage is Copy for a peer. Its copies take no more of the sending pool than they leave
// free, so that one peer has half of the pool at most, and the next one always finds some.
// Only a content that alone is larger takes more, while nothing else is in the pool. It may
// register memory. Release the bytes of the share together with the source.
// Errors: ResourceExhausted.
func (m *Memory) Stage(data []byte, s *Share) (Source, error) {
	b, err := m.stage(len(data), s)
	if err != nil {
		return Source{}, err
	}
	return m.copyInto(b, data), nil
}

// stage takes memory for one copy at a time: several at once would each be compared with a
// share that does not count the others yet.
func (m *Memory) stage(n int, s *Share) (*block, error) {
	m.staging.Lock()
	defer m.staging.Unlock()
	if err := m.sending.leavesEnough(n, s.held.Load()); err != nil {
		return nil, err
	}
	b, err := m.sending.take(n, MayGrow)
	if err == nil {
		s.held.Add(int64(n))
	}
	return b, err
}
