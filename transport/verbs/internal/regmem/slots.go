package regmem

import (
	"errors"
	"sync/atomic"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/verbs"
)

// SlotUse is the use of a set of slots.
type SlotUse uint8

const (
	// SendSlots are read by the local device only.
	SendSlots SlotUse = iota
	// RecvSlots are written by the local device when a message arrives. Peers cannot
	// address them with RDMA writes.
	RecvSlots
)

// Slots are message buffers of one size, mapped and registered as a whole: the receive
// ring or the send buffers of a channel. Their owner keeps track of which are in use. The
// methods other than Close may be called from any goroutine.
type Slots struct {
	m       *Memory
	mem     []byte
	kind    mapping
	release func()
	mr      verbs.MR
	count   int
	size    int
	stride  int
	closed  atomic.Bool
}

// NewSlots registers count slots of size bytes each. The caller closes them when the
// queue pairs that use them are destroyed.
func (d *Domain) NewSlots(count, size int, use SlotUse) (*Slots, error) {
	if count <= 0 || size <= 0 || size > 1<<30 || count > 1<<24 {
		return nil, status.Errorf(status.InvalidArgument, "%d slots of %d bytes for messages", count, size)
	}
	// Slots share no cache line: the device writes one while the next is read.
	stride := (size + granule - 1) / granule * granule
	total := int64(stride) * int64(count)
	total = (total + pageMultiple - 1) / pageMultiple * pageMultiple
	if uint64(total) > d.maxRegion {
		return nil, status.Errorf(status.ResourceExhausted, "%d slots of %d bytes for messages: a memory region of %s has %d bytes at most",
			count, size, d.device.Name, d.maxRegion)
	}
	release, err := d.m.reserve(total)
	if err != nil {
		return nil, status.Errorf(status.CodeOf(err), "no memory for %d slots of %d bytes for messages: %w", count, size, err)
	}
	mem, kind, err := mapMemory(int(total), mappingFor(d.device.GoMemory))
	if err != nil {
		release()
		return nil, status.Errorf(status.ResourceExhausted, "no memory for %d slots of %d bytes for messages: %w", count, size, err)
	}
	var access verbs.Access
	if use == RecvSlots {
		access = verbs.AccessLocalWrite
	}
	mr, err := d.pd.RegisterMemory(mem, access)
	if err != nil {
		unmapMemory(mem, kind)
		release()
		return nil, registerError(d.device.Name, "messages", int(total), err)
	}
	d.m.slotBytes.Add(total)
	return &Slots{m: d.m, mem: mem, kind: kind, release: release, mr: mr, count: count, size: size, stride: stride}, nil
}

// Len is the number of slots.
func (s *Slots) Len() int { return s.count }

// Size is the size of a slot in bytes.
func (s *Slots) Size() int { return s.size }

// Slot is the memory of slot i, 0 ≤ i < Len.
func (s *Slots) Slot(i int) []byte {
	at := i * s.stride
	return s.mem[at : at+s.size : at+s.size]
}

// SGE describes the first n bytes of slot i, n ≤ Size.
func (s *Slots) SGE(i, n int) verbs.SGE {
	return verbs.SGE{Addr: s.mr.Addr() + uint64(i*s.stride), Length: uint32(n), LKey: s.mr.LKey()}
}

// Close ends the registration and unmaps the memory. No slot may be used afterwards.
// Idempotent; call it from one goroutine.
func (s *Slots) Close() error {
	if s.closed.Swap(true) {
		return nil
	}
	s.m.slotBytes.Add(-int64(len(s.mem)))
	if err := s.mr.Close(); err != nil && !errors.Is(err, verbs.ErrDeviceGone) {
		return err // the device may still write to the memory, so it stays mapped
	}
	unmapMemory(s.mem, s.kind)
	s.release()
	s.mem = nil
	return nil
}
