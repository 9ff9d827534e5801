package regmem

import (
	"errors"
	"sync/atomic"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/verbs"
)

// SendMemory is memory that a device reads the content of a tensor from. The transport keeps
// its reference until all work requests that read from it have completed, or their queue
// pair is destroyed. The zero value is no memory.
type SendMemory struct {
	Range
	buf *tensor.Buffer
}

// Release ends the reference. Call it once.
func (s SendMemory) Release() { s.buf.Release() }

// Buffer is the memory. The reference belongs to s.
func (s SendMemory) Buffer() *tensor.Buffer { return s.buf }

// IsZero reports whether s is no memory.
func (s SendMemory) IsZero() bool { return s.buf == nil }

// Find returns the registered memory of data, if all of data lies in memory that is registered
// with the domain.
// data is memory of buf; the caller holds a reference to buf while it uses the range. It
// finds memory of both pools, so a received tensor can be sent again without a copy.
func (d *Domain) Find(buf *tensor.Buffer, data []byte) (Range, bool) {
	root, off := buf.Root()
	b, ok := root.Owner().(*block)
	if !ok || len(data) == 0 {
		return Range{}, false
	}
	r := b.arena.regionOf(d)
	if r == nil {
		return Range{}, false
	}
	all := b.bytes()
	if cap(data) <= len(all)-off && &all[off] == &data[0] { // all of a tensor's content
		return b.rangeOf(r, off, len(data)), true
	}
	// A slice whose capacity ends with the block begins cap(data) before its end. If the
	// addresses agree, all of data lies in the block. Other slices of the middle are
	// copied.
	at := len(all) - cap(data)
	if at < 0 || at >= len(all) || &all[at] != &data[0] {
		return Range{}, false
	}
	return b.rangeOf(r, at, len(data)), true
}

// ForSending returns memory that the device can read data from: data itself if it lies in
// registered memory, otherwise a copy in the sending pool. data is memory of buf. The
// memory has a reference of its own; the caller keeps its reference. Errors: as of Copy.
func (d *Domain) ForSending(buf *tensor.Buffer, data []byte, grow Grow) (SendMemory, error) {
	if p, ok := d.Find(buf, data); ok {
		return SendMemory{Range: p, buf: buf.Retain()}, nil
	}
	return d.Copy(data, grow)
}

// Copy returns a copy of data (at least 1 byte) in the sending pool. Errors:
// ErrMustGrow with NoGrow, ResourceExhausted when the pool is at its limit.
func (d *Domain) Copy(data []byte, grow Grow) (SendMemory, error) {
	b, at, err := d.take(d.send, len(data), grow)
	if err != nil {
		return SendMemory{}, err
	}
	return d.copyInto(b, at, data), nil
}

// take allocates a block that is registered with the domain, in one of its sections. The region
// stays valid for the caller, who ends its use of it when the device goes.
func (d *Domain) take(s *section, n int, grow Grow) (*block, *region, error) {
	b, err := s.take(n, grow, d)
	return d.registered(b, grow, err)
}

// registered returns a block with its registration, after an allocation that returned b and err.
func (d *Domain) registered(b *block, grow Grow, err error) (*block, *region, error) {
	if err != nil {
		return nil, nil, err
	}
	if at := b.arena.regionOf(d); at != nil {
		return b, at, nil
	}
	b.arena.pool.reclaim(b) // the device goes, or another one does not release the arena, so all registrations end
	if grow == NoGrow {
		return nil, nil, ErrMustGrow // another arena may do
	}
	return nil, nil, status.Errorf(status.Unavailable, "the registration of memory with %s has just ended: %w", d.device.Name, verbs.ErrClosed)
}

func (d *Domain) copyInto(b *block, at *region, data []byte) SendMemory {
	buf := b.buffer(len(data))
	copy(buf.Bytes(), data)
	d.m.copies.Add(1)
	d.m.copiedBytes.Add(int64(len(data)))
	return SendMemory{Range: b.rangeOf(at, 0, len(data)), buf: buf}
}

// Share counts the bytes of copies in the sending pool for one peer. The zero value is
// empty.
type Share struct {
	held atomic.Int64 // bytes
}

// Release subtracts a copy of n bytes. Call it when its memory is released. It does not
// block.
func (s *Share) Release(n int64) { s.held.Add(-n) }

// Stage is Copy for a peer with a share. The copies of a peer may take as much of the
// sending pool as they leave free: at most half of it, so that other peers find memory.
// Only content that is larger than that may take more, while nothing else is in the pool.
// Stage may register memory. Release the bytes of the share together with the memory.
// Errors: ResourceExhausted.
func (d *Domain) Stage(data []byte, s *Share) (SendMemory, error) {
	b, at, err := d.stage(len(data), s)
	if err != nil {
		return SendMemory{}, err
	}
	return d.copyInto(b, at, data), nil
}

// stage allocates the memory of a copy.
func (d *Domain) stage(n int, s *Share) (*block, *region, error) {
	b, at, err := d.stageOnce(n, s)
	for try := 0; d.m.sending.triesAgain(n, try, err); try++ {
		b, at, err = d.stageOnce(n, s)
	}
	return b, at, err
}

// stageOnce is stage without giving back what the users of the pool do not need. Each check has to count the copies
// before it, those too that wait for memory.
func (d *Domain) stageOnce(n int, s *Share) (*block, *region, error) {
	m := d.m
	b, at, err := func() (*block, *region, error) {
		m.staging.Lock()
		defer m.staging.Unlock()
		if err := m.sending.leavesEnough(int64(n), m.staged, s.held.Load()); err != nil {
			return nil, nil, err
		}
		block, err := d.send.takeOnce(n, NoGrow, d)
		b, at, err := d.registered(block, NoGrow, err)
		switch {
		case err == nil:
			s.held.Add(int64(n))
		case errors.Is(err, ErrMustGrow):
			s.held.Add(int64(n))
			m.staged += int64(n)
		}
		return b, at, err
	}()
	if !errors.Is(err, ErrMustGrow) {
		return b, at, err
	}
	// To register memory may take long, since peers that map some may have to drop it first.
	block, err := d.send.takeOnce(n, MayGrow, d)
	b, at, err = d.registered(block, MayGrow, err)
	m.staging.Lock()
	defer m.staging.Unlock()
	m.staged -= int64(n)
	if err != nil {
		s.held.Add(-int64(n))
	}
	return b, at, err
}
