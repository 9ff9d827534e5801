//go:build linux

package shm

import (
	"sync"

	"github.com/tryst-rdma/tryst/verbs"
)

// keys holds the registered memory of an opened device, by the keys of the device and
// of its peers. Code that copies from or to registered memory holds mu shared; closing
// a region or window takes it exclusively, so that nothing accesses the memory after
// Close.
type keys struct {
	mu      sync.RWMutex
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

// mr is a registered region.
type mr struct {
	pd     *pd
	mem    []byte // lent until the region is removed
	access verbs.Access
	// file is what peers map to read this memory themselves, from offset on; nil for memory
	// that is not a memfd.
	file   *file
	offset uint64
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
func (k *keys) add(d *pd, mem []byte, f *file, offset uint64, access verbs.Access) *mr {
	k.mu.Lock()
	defer k.mu.Unlock()
	m := &mr{pd: d, mem: mem, file: f, offset: offset, access: access, addr: k.address}
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
func (k *keys) localLocked(d *pd, s verbs.SGE, write bool) ([]byte, bool) {
	m := k.local[s.LKey]
	if m == nil || m.pd != d || write && m.access&verbs.AccessLocalWrite == 0 {
		return nil, false
	}
	off := s.Addr - m.addr
	if s.Addr < m.addr || off > uint64(len(m.mem)) || uint64(s.Length) > uint64(len(m.mem))-off {
		return nil, false
	}
	return m.mem[off : off+uint64(s.Length) : off+uint64(s.Length)], true
}

// gatherLocked appends to pieces the memory of n bytes of a list, beginning at offset
// off; false if the domain may not use it.
func (k *keys) gatherLocked(d *pd, sgl []verbs.SGE, off, n uint64, write bool, pieces [][]byte) ([][]byte, bool) {
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

// usableLocked reports whether the domain may use all memory of a list. Empty elements
// need no valid key.
func (k *keys) usableLocked(d *pd, sgl []verbs.SGE, write bool) bool {
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

// grantedLocked returns the region that the peer of a queue pair names, and the offset of the
// memory in it; nil if the key does not give the needed access.
func (k *keys) grantedLocked(d *pd, through *qp, addr, length uint64, key verbs.RKey, need verbs.Access) (m *mr, at uint64) {
	g := k.remote[key]
	if g == nil || g.mr.pd != d || g.access&need != need || g.through != nil && g.through != through {
		return nil, 0
	}
	off := addr - g.addr
	if addr < g.addr || off > g.length || length > g.length-off {
		return nil, 0
	}
	return g.mr, addr - g.mr.addr
}
