package regmem

import (
	"errors"
	"sync"

	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/verbs"
)

// inPlace is content of other memory that is registered where it lies, for one transfer. It is the
// Owner of the buffer of its Source.
type inPlace struct {
	domain *Domain
	of     *tensor.Buffer // holds the memory
	mr     verbs.MR
}

// places are the contents of a Domain that are registered in place.
type places struct {
	mu   sync.Mutex
	open map[*inPlace]struct{} // guarded by mu
	left bool                  // the domain is detached; guarded by mu
}

// InPlace registers data where it lies, until the memory is released: for content of memory that
// belongs to no pool, when the sending pool has no room for a copy. data is memory of buf. The memory has a
// reference of its own; the caller keeps its reference. Errors: errors.ErrUnsupported for a device that pins
// memory, where registering takes as long as a transfer; those of verbs.PD.RegisterMemory.
func (d *Domain) InPlace(buf *tensor.Buffer, data []byte) (SendMemory, error) {
	if !d.device.GoMemory || uint64(len(data)) > d.maxRegion {
		return SendMemory{}, errors.ErrUnsupported
	}
	l := &d.places
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.left {
		return SendMemory{}, verbs.Errorf("register memory with", d.device.Name, verbs.ErrClosed, "the device is not used any more")
	}
	mr, err := d.pd.RegisterMemory(data, 0)
	if err != nil {
		return SendMemory{}, err
	}
	p := &inPlace{domain: d, of: buf.Retain(), mr: mr}
	if l.open == nil {
		l.open = make(map[*inPlace]struct{})
	}
	l.open[p] = struct{}{}
	at := Range{Addr: mr.Addr(), Len: uint64(len(data)), LKey: mr.LKey(), RKey: mr.RKey()}
	return SendMemory{Range: at, buf: tensor.NewOwnedBuffer(data, p)}, nil
}

// Reclaim implements tensor.Owner. It may wait for accesses of the device that are under way. Memory that
// the device does not give back is never released.
func (p *inPlace) Reclaim([]byte) {
	l := &p.domain.places
	l.mu.Lock()
	_, open := l.open[p]
	delete(l.open, p)
	l.mu.Unlock()
	if open && p.close() != nil {
		return
	}
	p.of.Release()
}

func (p *inPlace) close() error {
	if err := p.mr.Close(); err != nil && !errors.Is(err, verbs.ErrDeviceGone) {
		return err
	}
	return nil
}

// leave ends all registrations in place, for Detach. The memory stays valid.
func (l *places) leave() (err error) {
	l.mu.Lock()
	open := l.open
	l.open, l.left = nil, true
	l.mu.Unlock()
	for p := range open {
		err = errors.Join(err, p.close())
	}
	return err
}
