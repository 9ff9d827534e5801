package verbstransport

import (
	"errors"
	"slices"
	"sync/atomic"

	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/transport/verbs/internal/regmem"
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
//
// Devices with memory windows and those without receive into memory apart. It is allocated for
// the devices over which most peers are reached at present.
func (t *RdmaRemoteRendezvous) ReceiveAllocator() tensor.Allocator { return deviceAllocator{t, true} }

// Registered reports whether the memory of a tensor is registered with a device in use: then it
// is sent over that without a copy.
func (t *RdmaRemoteRendezvous) Registered(x *tensor.Tensor) bool {
	return x.DType().Plain() && slices.ContainsFunc(t.inUse(), func(p *port) bool {
		_, ok := p.memory.Find(x.Buffer(), x.Bytes())
		return ok
	})
}

// carried counts the peers that are reached over devices with windows, and those over others. It
// is for ReceiveAllocator, which may be called for each tensor.
type carried struct{ windows, others atomic.Int64 }

// add counts a link that carries receives from now on, or with n = -1 no more. l may be nil.
func (c *carried) add(l *link, n int64) {
	switch {
	case l == nil:
	case l.port.memory.Leases():
		c.windows.Add(n)
	default:
		c.others.Add(n)
	}
}

// receiving returns the device for whose route ReceiveAllocator allocates; nil without one. While no
// peer is reached that is a device without windows, which is hardware: a copy costs it most.
func (t *RdmaRemoteRendezvous) receiving() *port {
	all := t.inUse()
	windows := t.carried.windows.Load() > t.carried.others.Load()
	for _, p := range all {
		if p.memory.Leases() == windows {
			return p
		}
	}
	if len(all) > 0 {
		return all[0]
	}
	return nil
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
	if p := a.t.receiving(); p != nil {
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

// Memlock is how much memory this process may lock (RLIMIT_MEMLOCK).
type Memlock = regmem.Memlock

// NoMemlock is the value of Memlock.Limit without a limit.
const NoMemlock = regmem.NoMemlock

// ReadMemlock reads the limit of this process, and how much of it is in use.
func ReadMemlock() (Memlock, error) { return regmem.ReadMemlock() }
