//go:build linux

package shm

import (
	"github.com/tryst-rdma/tryst/verbs"
)

// region implements verbs.MR.
type region struct {
	pd     *pd
	mr     *mr
	length uint64
	closed bool // guarded by the device's lock
}

// Addr implements verbs.MR.
func (r *region) Addr() uint64 { return r.mr.addr }

// Len implements verbs.MR.
func (r *region) Len() uint64 { return r.length }

// LKey implements verbs.MR.
func (r *region) LKey() verbs.LKey { return r.mr.lkey }

// RKey implements verbs.MR.
func (r *region) RKey() verbs.RKey { return r.mr.rkey }

// Close implements verbs.MR. After it has returned, neither the device nor a peer accesses the
// memory. For memory of a memfd it waits until all peers have unmapped it. A peer that does not
// within Provider.dropTime loses its connection, and gets no other one.
func (r *region) Close() error {
	d := r.pd.dev
	d.mu.Lock()
	if r.closed {
		d.mu.Unlock()
		return nil
	}
	if n := d.keys.remove(r.mr); n > 0 {
		d.mu.Unlock()
		return verbs.Errorf("close", "memory region", verbs.ErrBusy, "%d windows are bound to it", n)
	}
	r.closed = true
	var drops []drop
	for _, q := range d.qps {
		if q.pd == r.pd {
			q.regionClosed(r.mr)
			if x, ok := q.takeFileBack(r.mr.file); ok {
				drops = append(drops, x)
			}
		}
	}
	d.mu.Unlock()
	d.awaitDrops(drops)
	d.mu.Lock()
	defer d.mu.Unlock()
	r.pd.mrs--
	d.mrs--
	return nil
}
