//go:build linux

package shm

import (
	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/internal/soft"
)

// pd implements verbs.PD. What peers are to read from memory that RegisterMemory registers goes
// through a memfd of the queue pair, which costs a copy.
type pd struct {
	*soft.PD
	dev *device
}

// AllocPD implements verbs.Device.
func (d *device) AllocPD() (verbs.PD, error) {
	p, err := d.NewPD()
	if err != nil {
		return nil, err
	}
	return &pd{PD: p, dev: d}, nil
}

// backing is where peers find the memory of a region: in a memfd that they map, from offset on.
type backing struct {
	file   *file
	offset uint64
}

// backingOf is nil for memory that is not a memfd.
func backingOf(r *soft.Region) *backing {
	b, _ := r.Backing().(*backing)
	return b
}

// RegisterShared implements verbs.SharedMemory: memory of a memfd, which peers map and read
// themselves. Close of the region waits until all peers have unmapped it. A peer that does not within
// Provider.dropTime loses its connection, and gets no other one.
func (p *pd) RegisterShared(mem []byte, fd int, offset int64, access verbs.Access) (verbs.MR, error) {
	const op = "register shared memory"
	size, _, err := checkMemfd(fd)
	if err != nil {
		return nil, verbs.Errorf(op, name, verbs.ErrInvalid, "%v", err)
	}
	if offset < 0 || offset > size || int64(len(mem)) > size-offset {
		return nil, verbs.Errorf(op, name, verbs.ErrInvalid, "%d bytes at offset %d exceed the memfd of %d bytes", len(mem), offset, size)
	}
	f := &file{id: p.dev.fileIDs.Add(1), fd: fd, size: uint64(size)}
	r, err := p.Register(mem, access, &backing{file: f, offset: uint64(offset)})
	if err != nil {
		return nil, err
	}
	return r, nil
}

// regionClosed breaks the queue pairs whose peers may still read a region that was closed, and takes
// its memfd back. The caller holds the device's lock.
func (d *device) regionClosed(r *soft.Region) (wait func()) {
	var drops []drop
	for _, q := range d.qps {
		if q.pd.PD != r.PD() {
			continue
		}
		q.regionClosed(r)
		if b := backingOf(r); b != nil {
			if x, ok := q.takeFileBack(b.file); ok {
				drops = append(drops, x)
			}
		}
	}
	if len(drops) == 0 {
		return nil
	}
	return func() { d.awaitDrops(drops) }
}

// windowClosed breaks the queue pair of a window if the peer has not copied the content of a READ
// through it that was answered.
func windowClosed(w *soft.Window) {
	if w.Access()&verbs.AccessRemoteRead != 0 && backingOf(w.Region()) != nil {
		w.Through().(*qp).windowClosed(w.RKey()) //nolint:errcheck // BindWindow passes nothing else
	}
}

// BindWindow implements verbs.QP.
func (q *qp) BindWindow(mr verbs.MR, offset, length uint64, access verbs.Access) (verbs.Window, error) {
	const op = "bind window"
	d := q.pd.dev
	d.Mu.Lock()
	defer d.Mu.Unlock()
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.machine.Open(op); err != nil {
		return nil, err
	}
	w, err := q.pd.BindLocked(op, q, q.machine.State(), mr, offset, length, access)
	if err != nil {
		err.Object = q.machine.Object()
		return nil, err
	}
	return w, nil
}
