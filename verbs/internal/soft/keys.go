package soft

import (
	"crypto/rand"
	"encoding/binary"
	"sync"
	"sync/atomic"

	"github.com/tryst-rdma/tryst/verbs"
)

// Keys holds the registered memory of an opened device, by the keys of the device and of its peers.
// Taking a key away locks Mu for writing. So a provider that holds Mu for reading while it looks up and
// uses memory never uses memory whose Close has returned. One that uses memory without Mu waits in
// Hooks for the accesses that have begun.
type Keys struct {
	Mu      sync.RWMutex
	local   map[verbs.LKey]*Region
	remote  map[verbs.RKey]*grant
	address uint64     // of the next region
	atomics sync.Mutex // serializes atomics
}

// grant is what a remote key gives access to: a region, or the part of it that a window covers.
type grant struct {
	region *Region
	addr   uint64
	length uint64
	access verbs.Access
	// through is the only queue pair that may use the key, a pointer; nil for the key of a region
	// (type 2B windows: specification, volume 1, 10.6.7.2).
	through any
	dead    atomic.Bool // invalidated by the peer
}

// Domain is what memory and queue pairs belong to that may be used together.
type Domain struct{ Keys *Keys }

// Addresses of regions are numbers of the device; they do not reveal addresses of the process.
const (
	regionAlign = 4096
	// RegionGap is the distance in bytes between two regions at least. It keeps an access beyond
	// the end of one region out of the next.
	RegionGap = 1 << 20
)

// NewKeys returns keys without memory.
func NewKeys() *Keys {
	return &Keys{
		local: make(map[verbs.LKey]*Region), remote: make(map[verbs.RKey]*grant),
		address: 1<<44 + uint64(Random32())<<12,
	}
}

// Random32 returns a cryptographically random number.
func Random32() uint32 {
	var b [4]byte
	rand.Read(b[:]) // never fails (crypto/rand)
	return binary.NativeEndian.Uint32(b[:])
}

// freshLocked returns a key that is unused both as a local and as a remote key, so that confusing
// the two never works by accident.
func (k *Keys) freshLocked() uint32 {
	for {
		n := Random32()
		_, local := k.local[verbs.LKey(n)]
		_, remote := k.remote[verbs.RKey(n)]
		if n != 0 && !local && !remote {
			return n
		}
	}
}

// Add registers memory for a machine without a device. It must not be closed, but removed.
func (k *Keys) Add(d *Domain, mem []byte, access verbs.Access) *Region {
	return k.add(&Region{domain: d, mem: mem, access: access})
}

// add completes a region, and gives access to it.
func (k *Keys) add(r *Region) *Region {
	k.Mu.Lock()
	defer k.Mu.Unlock()
	r.addr, r.length = k.address, uint64(len(r.mem))
	r.lkey = verbs.LKey(k.freshLocked())
	k.local[r.lkey] = r
	r.rkey = verbs.RKey(k.freshLocked())
	k.remote[r.rkey] = &grant{region: r, addr: r.addr, length: r.length, access: r.access}
	k.address += (r.length+regionAlign-1)&^(regionAlign-1) + RegionGap
	return r
}

// Remove revokes the keys of a region. If windows are bound to it, Remove does nothing and returns
// their number.
func (k *Keys) Remove(r *Region) (windows int) {
	k.Mu.Lock()
	defer k.Mu.Unlock()
	if r.windows > 0 {
		return r.windows
	}
	delete(k.local, r.lkey)
	delete(k.remote, r.rkey)
	r.mem = nil
	return 0
}

// Bind gives a queue pair a key of its own to a part of an open region. through is a pointer that
// names the queue pair.
func (k *Keys) Bind(r *Region, through any, offset, length uint64, access verbs.Access) verbs.RKey {
	k.Mu.Lock()
	defer k.Mu.Unlock()
	key := verbs.RKey(k.freshLocked())
	k.remote[key] = &grant{region: r, addr: r.addr + offset, length: length, access: access, through: through}
	r.windows++
	return key
}

// Unbind revokes a key of Bind.
func (k *Keys) Unbind(key verbs.RKey, r *Region) {
	k.Mu.Lock()
	defer k.Mu.Unlock()
	delete(k.remote, key)
	r.windows--
}

// InvalidateLocked invalidates the key of a window on behalf of the peer (SEND with Invalidate:
// specification, volume 1, 9.4.1.1.3). It returns false if the key is not that of a window on
// this queue pair. The window stays open until its owner closes it.
func (k *Keys) InvalidateLocked(key verbs.RKey, through any) bool {
	g := k.remote[key]
	if g == nil || g.through == nil || g.through != through || g.dead.Load() {
		return false
	}
	g.dead.Store(true)
	return true
}

// LocalLocked returns the region of a local key; nil for none.
func (k *Keys) LocalLocked(key verbs.LKey) *Region { return k.local[key] }

// MemoryLocked returns the memory of an SGE; false if the domain may not use it.
func (k *Keys) MemoryLocked(d *Domain, s verbs.SGE, write bool) ([]byte, bool) {
	r := k.local[s.LKey]
	if r == nil || r.domain != d || write && r.access&verbs.AccessLocalWrite == 0 {
		return nil, false
	}
	off := s.Addr - r.addr
	if s.Addr < r.addr || off > uint64(len(r.mem)) || uint64(s.Length) > uint64(len(r.mem))-off {
		return nil, false
	}
	return r.mem[off : off+uint64(s.Length) : off+uint64(s.Length)], true
}

// GatherLocked appends to buffers the memory of n bytes of a list, beginning at offset off; false
// if the domain may not use it.
func (k *Keys) GatherLocked(d *Domain, sgl []verbs.SGE, off, n uint64, write bool, buffers [][]byte) ([][]byte, bool) {
	for _, s := range sgl {
		if n == 0 {
			break
		}
		if off >= uint64(s.Length) {
			off -= uint64(s.Length)
			continue
		}
		b, ok := k.MemoryLocked(d, s, write)
		if !ok {
			return buffers, false
		}
		b = b[off:]
		off = 0
		b = b[:min(uint64(len(b)), n)]
		n -= uint64(len(b))
		buffers = append(buffers, b)
	}
	return buffers, n == 0
}

// UsableLocked reports whether the domain may use all memory of a list. Empty elements need no
// valid key.
func (k *Keys) UsableLocked(d *Domain, sgl []verbs.SGE, write bool) bool {
	for _, s := range sgl {
		if s.Length == 0 {
			continue
		}
		if _, ok := k.MemoryLocked(d, s, write); !ok {
			return false
		}
	}
	return true
}

// FindLocked returns the region that the peer of a queue pair names, and the offset of the memory
// in it; nil if the key does not give the needed access.
func (k *Keys) FindLocked(d *Domain, through any, addr, length uint64, key verbs.RKey, need verbs.Access) (r *Region, at uint64) {
	g := k.remote[key]
	if g == nil || g.region.domain != d || g.access&need != need || g.through != nil && g.through != through || g.dead.Load() {
		return nil, 0
	}
	off := addr - g.addr
	if addr < g.addr || off > g.length || length > g.length-off {
		return nil, 0
	}
	return g.region, addr - g.region.addr
}

// GrantedLocked is FindLocked for the memory itself; false if the key does not give the needed
// access.
func (k *Keys) GrantedLocked(d *Domain, through any, addr, length uint64, key verbs.RKey, need verbs.Access) ([]byte, bool) {
	r, at := k.FindLocked(d, through, addr, length, key, need)
	if r == nil {
		return nil, false
	}
	return r.BytesLocked(at, length), true
}

// Gather is GatherLocked with Mu held for the look-up only, for a provider that waits in Hooks.
func (k *Keys) Gather(d *Domain, sgl []verbs.SGE, off, n uint64, write bool, buffers [][]byte) ([][]byte, bool) {
	k.Mu.RLock()
	defer k.Mu.RUnlock()
	return k.GatherLocked(d, sgl, off, n, write, buffers)
}

// Usable is UsableLocked, as Gather.
func (k *Keys) Usable(d *Domain, sgl []verbs.SGE, write bool) bool {
	k.Mu.RLock()
	defer k.Mu.RUnlock()
	return k.UsableLocked(d, sgl, write)
}

// Granted is GrantedLocked, as Gather.
func (k *Keys) Granted(d *Domain, through any, addr, length uint64, key verbs.RKey, need verbs.Access) ([]byte, bool) {
	k.Mu.RLock()
	defer k.Mu.RUnlock()
	return k.GrantedLocked(d, through, addr, length, key, need)
}

// FetchAndUpdate changes 8 bytes in the byte order of the host, and returns their old value. Atomics
// are atomic with regard to other requests to the same opened device (IBV_ATOMIC_HCA of
// ibv_query_device(3)).
func (k *Keys) FetchAndUpdate(mem []byte, change func(uint64) uint64) uint64 {
	k.atomics.Lock()
	defer k.atomics.Unlock()
	old := binary.NativeEndian.Uint64(mem)
	binary.NativeEndian.PutUint64(mem, change(old))
	return old
}
