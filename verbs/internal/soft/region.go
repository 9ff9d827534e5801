package soft

import "github.com/tryst-rdma/tryst/verbs"

// Region is a registered region.
type Region struct {
	pd      *PD
	domain  *Domain
	mem     []byte // lent until Close; nil afterwards, guarded by Keys.Mu
	length  uint64
	access  verbs.Access
	addr    uint64
	lkey    verbs.LKey
	rkey    verbs.RKey
	backing any

	windows int  // bound to it; guarded by Keys.Mu
	closed  bool // guarded by Device.Mu
}

// Addr implements verbs.MR.
func (r *Region) Addr() uint64 { return r.addr }

// Len implements verbs.MR.
func (r *Region) Len() uint64 { return r.length }

// LKey implements verbs.MR.
func (r *Region) LKey() verbs.LKey { return r.lkey }

// RKey implements verbs.MR.
func (r *Region) RKey() verbs.RKey { return r.rkey }

// PD is the protection domain of the region.
func (r *Region) PD() *PD { return r.pd }

// Backing is what the provider passed to Register.
func (r *Region) Backing() any { return r.backing }

// BytesLocked is the memory from an offset on. It is valid while Keys.Mu is held, or until an access
// ends for which RegionClosed waits.
func (r *Region) BytesLocked(at, n uint64) []byte { return r.mem[at : at+n : at+n] }

// Close implements verbs.MR. After it has returned, neither the device nor a peer accesses the
// memory.
func (r *Region) Close() error {
	d := r.pd.dev
	d.Mu.Lock()
	defer d.Mu.Unlock()
	if r.closed {
		return nil
	}
	if n := d.Keys.Remove(r); n > 0 {
		return verbs.Errorf("close", "memory region", verbs.ErrBusy, "%d windows are bound to it", n)
	}
	r.closed = true
	if f := d.hooks.RegionClosed; f != nil {
		if wait := f(r); wait != nil {
			d.Mu.Unlock()
			wait()
			d.Mu.Lock()
		}
	}
	r.pd.mrs--
	d.mrs--
	return nil
}
