package verbstransport

import (
	"errors"

	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/verbs"
)

// Allocator allocates tensors that are sent without a copy. Peers have no rights to their
// memory. While there is no device it allocates other memory (Options.Allocator), which is
// copied to be sent.
func (t *RdmaRemoteRendezvous) Allocator() tensor.Allocator { return deviceAllocator{t, false} }

// ReceiveAllocator allocates tensors that values are received into without a copy
// (rendezvous.Into), and that are sent without a copy, too. While a transfer into one is
// under way its peer has the right to write to it; with libibverbs to all memory of this
// allocator (docs/security.md). While there is no device it allocates other memory
// (Options.Allocator).
func (t *RdmaRemoteRendezvous) ReceiveAllocator() tensor.Allocator { return deviceAllocator{t, true} }

// Registered reports whether the memory of a tensor is registered with the device in use:
// then it is sent without a copy.
func (t *RdmaRemoteRendezvous) Registered(x *tensor.Tensor) bool {
	all := t.inUse()
	if len(all) == 0 || !x.DType().Plain() {
		return false
	}
	_, ok := all[0].memory.Find(x.Buffer(), x.Bytes())
	return ok
}

// deviceAllocator allocates memory of the device that is in use at the time.
type deviceAllocator struct {
	t       *RdmaRemoteRendezvous
	receive bool
}

// Allocate implements tensor.Allocator.
func (a deviceAllocator) Allocate(n int) (*tensor.Buffer, error) {
	b := new(tensor.Buffer)
	if err := a.AllocateBuffer(b, n); err != nil {
		return nil, err
	}
	return b, nil
}

// AllocateBuffer implements tensor.BufferAllocator.
func (a deviceAllocator) AllocateBuffer(b *tensor.Buffer, n int) error {
	if all := a.t.inUse(); len(all) > 0 {
		p := all[0]
		from := a.t.memory.Allocator()
		if a.receive {
			from = p.memory.ReceiveAllocator()
		}
		if err := tensor.AllocateBuffer(from, b, n); !errors.Is(err, verbs.ErrClosed) && !errors.Is(err, verbs.ErrDeviceGone) {
			return err
		}
	}
	return tensor.AllocateBuffer(a.t.opts.Allocator, b, n)
}

// Reserve implements tensor.Reserver: strings are not in registered memory.
func (a deviceAllocator) Reserve(n int64) (*tensor.Buffer, error) {
	return tensor.Reserve(a.t.opts.Allocator, n)
}
