package checkpoint

import (
	"bytes"
	"sync"

	"github.com/tryst-rdma/tryst/tensor"
)

// known is what a watcher knows of memory into which it pulls: the digests of what came. A tensor that is being written has
// none. Since each tensor is checked after it was made from this, nothing is lost if somebody has written to it.
type known struct {
	memory map[string]*tensor.Tensor // by name; not guarded: it changes between pulls only

	mu sync.Mutex
	// All below are guarded by mu.
	version Publication       // that came whole last; without a number before the first
	digests map[string][]byte // by name
}

func newKnown(memory map[string]*tensor.Tensor) *known {
	return &known{memory: memory, digests: make(map[string][]byte)}
}

// forget is called before a tensor is written. A nil known knows nothing.
func (k *known) forget(name string) {
	if k == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.digests, name)
}

// came is called when a tensor is in its memory, and was checked.
func (k *known) came(e *TensorInfo) {
	if k == nil || k.memory[e.Name] == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.digests[e.Name] = e.Digest
}

// whole is called when a version came whole.
func (k *known) whole(p Publication) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.version = p
}

// last returns the version that came whole last.
func (k *known) last() Publication {
	if k == nil {
		return Publication{}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.version
}

// find implements basis.
func (k *known) find(e *TensorInfo) *way {
	if k == nil {
		return nil
	}
	t := k.memory[e.Name]
	if t == nil || t.DType() != e.DType || !t.Shape().Equal(e.Shape) || !e.DType.Plain() {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	digest := k.digests[e.Name]
	if digest == nil {
		return nil
	}
	return &way{base: t, digest: digest, from: k}
}

// basis is what a watcher has of a version: memory, or files.
type basis interface {
	// last returns the version that came whole last.
	last() Publication
	// find returns how an entry is made from the tensor with its name; nil if there is none of the same layout.
	find(e *TensorInfo) *way
	// forget is called when a tensor has not the content that it should have.
	forget(name string)
}

// has returns how an entry is made that is there already; otherwise nil.
func has(b basis, e *TensorInfo) *way {
	if b == nil {
		return nil
	}
	w := b.find(e)
	if w == nil || !bytes.Equal(w.digest, e.Digest) {
		return nil
	}
	return w
}
