package roce

import (
	"crypto/rand"
	"encoding/binary"
	"sync"
	"sync/atomic"

	"github.com/tryst-rdma/tryst/verbs"
)

// keys is the memory of one opening of a device: what its keys give, to itself
// and to peers. Whoever copies to or from registered memory holds the lock shared
// while it does; closing a region or a window takes it alone, so that none is
// touched any more when Close has returned.
type keys struct {
	mu      sync.RWMutex
	local   map[verbs.LKey]*mr
	remote  map[verbs.RKey]*grant
	address uint64     // of the next region
	atomics sync.Mutex // taken by one atomic at a time
}

// grant is what a remote key gives: a region, or a window's part of it.
type grant struct {
	mr     *mr
	addr   uint64
	length uint64
	access verbs.Access
	// through is the queue pair that alone may use it; nil for a region's own key
	// (type 2B windows: specification, volume 1, 10.6.7.2).
	through *machine
	dead    atomic.Bool // invalidated by the peer, which had the right to
}

// domain is what memory and queue pairs belong together by.
type domain struct{ keys *keys }

// mr is a registered region.
type mr struct {
	domain *domain
	mem    []byte // lent until it is removed
	access verbs.Access
	addr   uint64
	lkey   verbs.LKey
	rkey   verbs.RKey

	windows int // guarded by keys.mu
}

// Addresses are numbers of the device's own: they say nothing of where the memory
// of the process lies. Regions have a gap between them, so that who runs past the
// end of one does not come to another.
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

// random32 is not to be guessed.
func random32() uint32 {
	var b [4]byte
	rand.Read(b[:]) // it never fails
	return binary.NativeEndian.Uint32(b[:])
}

// freshLocked is a key that nothing has, of either kind, so that keys that are
// mixed up never work by luck.
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

// remove takes a region's keys back; the number of windows when there are any,
// and then nothing is done.
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

// bind makes a window of a region that is open.
func (k *keys) bind(m *mr, through *machine, offset, length uint64, access verbs.Access) verbs.RKey {
	k.mu.Lock()
	defer k.mu.Unlock()
	key := verbs.RKey(k.freshLocked())
	k.remote[key] = &grant{mr: m, addr: m.addr + offset, length: length, access: access, through: through}
	m.windows++
	return key
}

// unbind ends a window.
func (k *keys) unbind(key verbs.RKey, m *mr) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.remote, key)
	m.windows--
}

// invalidateLocked lets a window's key die at the peer's wish (SEND with
// Invalidate: specification, volume 1, 9.4.1.1.3); false when it is no window of
// that queue pair. The window itself stays open until its owner closes it.
func (k *keys) invalidateLocked(key verbs.RKey, through *machine) bool {
	g := k.remote[key]
	if g == nil || g.through == nil || g.through != through || g.dead.Load() {
		return false
	}
	g.dead.Store(true)
	return true
}

// localLocked is the part of an SGE from off on, of at most n bytes; false when
// the SGE does not name memory that the domain may use so.
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

// gatherLocked appends the memory of n bytes of a list, from off on, to pieces.
func (k *keys) gatherLocked(d *domain, sgl []verbs.SGE, off, n uint64, write bool, pieces [][]byte) ([][]byte, bool) {
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

// usableLocked says whether every piece of a list names memory that the domain may
// use so. Empty pieces name none.
func (k *keys) usableLocked(d *domain, sgl []verbs.SGE, write bool) bool {
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

// grantedLocked is the memory that a peer names through a queue pair.
func (k *keys) grantedLocked(d *domain, through *machine, addr, length uint64, key verbs.RKey, need verbs.Access) ([]byte, bool) {
	g := k.remote[key]
	if g == nil || g.mr.domain != d || g.access&need != need || g.through != nil && g.through != through || g.dead.Load() {
		return nil, false
	}
	off := addr - g.addr
	if addr < g.addr || off > g.length || length > g.length-off {
		return nil, false
	}
	at := addr - g.mr.addr
	return g.mr.mem[at : at+length : at+length], true
}
