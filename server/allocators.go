package server

import (
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// sendMemory allocates for published tensors: registered memory, from which they are
// sent without a copy, and other memory when that is exhausted.
type sendMemory struct{ n *node }

func (m sendMemory) first() tensor.Allocator {
	if m.n.rdma == nil {
		return m.n.allocator
	}
	return firstOf{m.n.rdma.Transport.Allocator(), m.n.allocator}
}

// Allocate implements tensor.Allocator.
func (m sendMemory) Allocate(n int) (*tensor.Buffer, error) { return m.first().Allocate(n) }

// AllocateBuffer implements tensor.BufferAllocator.
func (m sendMemory) AllocateBuffer(b *tensor.Buffer, n int) error {
	return tensor.AllocateBuffer(m.first(), b, n)
}

// Reserve implements tensor.Reserver.
func (m sendMemory) Reserve(n int64) (*tensor.Buffer, error) { return tensor.Reserve(m.first(), n) }

// receiveAllocator returns the allocator for what is pulled: registered memory, and other memory when
// that is exhausted.
func (n *node) receiveAllocator() tensor.Allocator {
	if n.rdma == nil {
		return n.allocator
	}
	return firstOf{n.rdma.Transport.ReceiveAllocator(), n.allocator}
}

// giveBack releases n bytes of the cache of published files, or what nobody reads of it. It reports whether there was
// any.
func (n *node) giveBack(bytes int64) bool {
	c := n.lateCatalog.Load()
	return c != nil && c.GiveBack(bytes)
}

// firstOf allocates from first, and from second when first is exhausted.
type firstOf struct{ first, second tensor.Allocator }

// Allocate implements tensor.Allocator.
func (p firstOf) Allocate(n int) (*tensor.Buffer, error) {
	b := new(tensor.Buffer)
	if err := p.AllocateBuffer(b, n); err != nil {
		return nil, err
	}
	return b, nil
}

// AllocateBuffer implements tensor.BufferAllocator.
func (p firstOf) AllocateBuffer(b *tensor.Buffer, n int) error {
	err := tensor.AllocateBuffer(p.first, b, n)
	if status.CodeOf(err) == status.ResourceExhausted {
		return tensor.AllocateBuffer(p.second, b, n)
	}
	return err
}

// Reserve implements tensor.Reserver.
func (p firstOf) Reserve(n int64) (*tensor.Buffer, error) { return tensor.Reserve(p.second, n) }
