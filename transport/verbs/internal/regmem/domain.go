package regmem

import (
	"errors"
	"slices"
	"sync"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/verbs"
)

// Domain is a protection domain of a device that the memory is registered with, from Attach
// to Detach. What its methods return is registered with it.
type Domain struct {
	m         *Memory
	pd        verbs.PD
	device    verbs.DeviceInfo
	maxRegion uint64             // bytes of a memory region, whole pages
	shared    verbs.SharedMemory // nil when peers do not map the memory
	leases    bool
	send      *section
	receive   *section
	detach    sync.Once
	places    places
}

// Attach registers the memory with a protection domain: all arenas that exist, and
// Options.Start bytes of each pool. The caller calls Detach before it closes pd. It takes
// milliseconds for each arena; others may allocate meanwhile. Errors: InvalidArgument when
// the regions of the device are too small; ResourceExhausted when Start cannot be
// registered, which is verbs.ErrMemlock and names the limit to raise when the limit of
// locked memory is the cause.
func (m *Memory) Attach(pd verbs.PD, device verbs.DeviceInfo) (*Domain, error) {
	d := &Domain{m: m, pd: pd, device: device, maxRegion: wholePages(device.Limits.MRSize)}
	if d.maxRegion == 0 {
		return nil, status.Errorf(status.InvalidArgument, "%s registers at most %d bytes in one region, and at least %d are needed; use another device",
			device.Name, device.Limits.MRSize, pageMultiple)
	}
	d.shared, _ = pd.(verbs.SharedMemory)
	d.leases = device.Windows && device.GoMemory
	d.send, d.receive = m.sending.sections[0], m.receiving.sections[sharedRKeys]
	if d.leases {
		d.receive = m.receiving.sections[leasedRKeys]
	}
	m.attaching.Lock()
	defer m.attaching.Unlock()
	if m.closed {
		return nil, verbs.Errorf("register memory with", device.Name, verbs.ErrClosed, "the transport is closed")
	}
	for _, s := range d.sections() {
		if err := s.attach(d, m.start); err != nil {
			return nil, errors.Join(err, d.leave())
		}
	}
	m.domains = append(m.domains, d)
	return d, nil
}

func (d *Domain) sections() []*section { return []*section{d.send, d.receive} }

// Detach ends all registrations with the domain. Call it when every queue pair of the
// domain is destroyed. Tensors stay valid, and registered with other domains. Owners close
// their Slots. Where peers map the memory it waits until they have dropped it. Only the
// first call has an effect; others wait for it.
func (d *Domain) Detach() (err error) {
	d.detach.Do(func() {
		d.m.attaching.Lock()
		d.m.domains = slices.DeleteFunc(d.m.domains, func(o *Domain) bool { return o == d })
		d.m.attaching.Unlock()
		err = d.leave()
	})
	return err
}

func (d *Domain) leave() (err error) {
	err = d.places.leave()
	for _, s := range d.sections() {
		err = errors.Join(err, s.detach(d))
	}
	return err
}

// register registers an arena. A device that shares memory with peers copies what it sends of
// an arena that is no memfd.
func (d *Domain) register(a *arena, access verbs.Access) (*region, error) {
	var mr verbs.MR
	var err error
	if d.shared != nil && a.fd >= 0 {
		mr, err = d.shared.RegisterShared(a.mem, a.fd, 0, access)
	} else {
		mr, err = d.pd.RegisterMemory(a.mem, access)
	}
	if err != nil {
		return nil, err
	}
	return &region{domain: d, mr: mr, addr: mr.Addr(), lkey: mr.LKey(), rkey: mr.RKey()}, nil
}

// Leases reports whether peers get an rkey for each destination (Destination.Lease) and
// none for an arena. That is so where memory windows need no command to hardware: on a
// device in software.
func (d *Domain) Leases() bool { return d.leases }

// ReceiveAllocator allocates tensors that peers can write a content into (Account.Adopt),
// and that are sent without a copy, too. Peers have rights to the arenas of this memory
// while transfers into it are under way; to that of Memory.Allocator never. The memory
// serves all devices with windows, or all without: others copy the content into it once.
func (d *Domain) ReceiveAllocator() tensor.Allocator { return d.receive }
