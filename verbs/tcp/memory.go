package tcp

import (
	"crypto/rand"
	"encoding/binary"
	"sync"

	"github.com/tryst-rdma/tryst/verbs"
)

// keys holds the registered memory of an opened device, by the keys of the device and
// of its peers. Code looks memory up and uses it within one access (conn.go). Closing a
// region or window first takes its keys away, then waits for the accesses under way, so
// nothing uses the memory after Close.
type keys struct {
	mu      sync.RWMutex // taken last; held for a look-up only
	local   map[verbs.LKey]*mr
	remote  map[verbs.RKey]*grant
	address uint64     // of the next region
	atomics sync.Mutex // serializes atomics
}

// grant is what a remote key gives access to: a region, or the part of it that a window
// covers.
type grant struct {
	mr     *mr
	addr   uint64
	length uint64
	access verbs.Access
	// through is the only queue pair that may use the key; nil for the key of a region
	// (type 2B windows: specification, volume 1, 10.6.7.2).
	through *qp
}

// domain is a protection domain: the memory and the queue pairs that belong together.
type domain struct{ keys *keys }

// mr is a registered region.
type mr struct {
	domain *domain
	mem    []byte // lent until the region is removed
	access verbs.Access
	addr   uint64
	lkey   verbs.LKey
	rkey   verbs.RKey

	windows int // bound to it; guarded by keys.mu
}

// Addresses of regions are numbers of the device; they do not reveal addresses of the
// process. A gap between regions keeps an access beyond the end of one region out of
// the next.
const (
	regionAlign = 4096
	regionGap   = 1 << 20
)

func newKeys() *keys {
	return &keys{
		local: make(map[verbs.LKey]*mr), remote: make(map[verbs.RKey]*grant),
		address: 1<<44 + uint64(random32())<<12,
	}
}

// random32 returns a cryptographically random number.
func random32() uint32 {
	var b [4]byte
	rand.Read(b[:]) // never fails
	return binary.NativeEndian.Uint32(b[:])
}

// freshLocked returns a key that is unused both as a local and as a remote key, so that
// confusing the two never works by accident.
func (k *keys) freshLocked() uint32 {
	for {
		n := random32()
		_, local := k.local[verbs.LKey(n)]
		_, remote := k.remote[verbs.RKey(n)]
		if n != 0 && !local && !remote {
			return n
		}
	}
}

// add registers memory.
func (k *keys) add(d *domain, mem []byte, access verbs.Access) *mr {
	k.mu.Lock()
	defer k.mu.Unlock()
	m := &mr{domain: d, mem: mem, access: access, addr: k.address}
	m.lkey = verbs.LKey(k.freshLocked())
	k.local[m.lkey] = m
	m.rkey = verbs.RKey(k.freshLocked())
	k.remote[m.rkey] = &grant{mr: m, addr: m.addr, length: uint64(len(mem)), access: access}
	k.address += (uint64(len(mem))+regionAlign-1)&^(regionAlign-1) + regionGap
	return m
}

// remove revokes the keys of a region. If windows are bound to it, remove does nothing
// and returns their number.
func (k *keys) remove(m *mr) (windows int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if m.windows > 0 {
		return m.windows
	}
	delete(k.local, m.lkey)
	delete(k.remote, m.rkey)
	m.mem = nil
	return 0
}

// bind creates a window on an open region.
func (k *keys) bind(m *mr, through *qp, offset, length uint64, access verbs.Access) verbs.RKey {
	k.mu.Lock()
	defer k.mu.Unlock()
	key := verbs.RKey(k.freshLocked())
	k.remote[key] = &grant{mr: m, addr: m.addr + offset, length: length, access: access, through: through}
	m.windows++
	return key
}

// unbind closes a window.
func (k *keys) unbind(key verbs.RKey, m *mr) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.remote, key)
	m.windows--
}

// localLocked returns the memory of an SGE; false if the domain may not use it.
func (k *keys) localLocked(d *domain, s verbs.SGE, write bool) ([]byte, bool) {
	m := k.local[s.LKey]
	if m == nil || m.domain != d || write && m.access&verbs.AccessLocalWrite == 0 {
		return nil, false
	}
	off := s.Addr - m.addr
	if s.Addr < m.addr || off > uint64(len(m.mem)) || uint64(s.Length) > uint64(len(m.mem))-off {
		return nil, false
	}
	return m.mem[off : off+uint64(s.Length) : off+uint64(s.Length)], true
}

// gather appends to pieces the memory of n bytes of a list, beginning at offset off; false
// if the domain may not use it. The pieces are valid until the access ends.
func (k *keys) gather(d *domain, sgl []verbs.SGE, off, n uint64, write bool, pieces [][]byte) ([][]byte, bool) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	for _, s := range sgl {
		if n == 0 {
			break
		}
		if off >= uint64(s.Length) {
			off -= uint64(s.Length)
			continue
		}
		b, ok := k.localLocked(d, s, write)
		if !ok {
			return pieces, false
		}
		b = b[off:]
		off = 0
		b = b[:min(uint64(len(b)), n)]
		n -= uint64(len(b))
		pieces = append(pieces, b)
	}
	return pieces, n == 0
}

// usable reports whether the domain may use all memory of a list. Empty elements need no
// valid key.
func (k *keys) usable(d *domain, sgl []verbs.SGE, write bool) bool {
	k.mu.RLock()
	defer k.mu.RUnlock()
	for _, s := range sgl {
		if s.Length == 0 {
			continue
		}
		if _, ok := k.localLocked(d, s, write); !ok {
			return false
		}
	}
	return true
}

// granted returns the memory that the peer of a queue pair names; false if the key does not
// give the needed access. The memory is valid until the access ends.
func (k *keys) granted(d *domain, through *qp, addr, length uint64, key verbs.RKey, need verbs.Access) ([]byte, bool) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	g := k.remote[key]
	if g == nil || g.mr.domain != d || g.access&need != need || g.through != nil && g.through != through {
		return nil, false
	}
	off := addr - g.addr
	if addr < g.addr || off > g.length || length > g.length-off {
		return nil, false
	}
	at := addr - g.mr.addr
	return g.mr.mem[at : at+length : at+length], true
}

// fetchAndUpdate changes 8 bytes in the byte order of the host, and returns their old
// value. Atomics are atomic with regard to other requests to the same opened device
// (IBV_ATOMIC_HCA of ibv_query_device(3)).
func (k *keys) fetchAndUpdate(mem []byte, change func(uint64) uint64) uint64 {
	k.atomics.Lock()
	defer k.atomics.Unlock()
	old := binary.NativeEndian.Uint64(mem)
	binary.NativeEndian.PutUint64(mem, change(old))
	return old
}
