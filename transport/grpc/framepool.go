package grpctransport

import (
	"sync"

	"google.golang.org/grpc/mem"
)

// framePool allocates the buffers into which gRPC reads frames. gRPC's own pool clears each
// buffer before use, which is one more pass over all received bytes. The garbage collector
// empties that pool, very often in a process with a small heap. A framePool does not clear
// buffers and keeps up to maxIdleFrames of them from the collector.
type framePool struct {
	mu    sync.Mutex     // guards idle
	idle  []*[]byte      // of frameSize each, at most maxIdleFrames
	more  sync.Pool      // of frameSize each; the collector may free them
	other mem.BufferPool // for other sizes
}

func newFramePool() *framePool { return &framePool{other: mem.DefaultBufferPool()} }

// Get implements mem.BufferPool. The content is undefined.
func (p *framePool) Get(n int) *[]byte {
	if n > frameSize || mem.IsBelowBufferPoolingThreshold(n) {
		return p.other.Get(n)
	}
	b := p.take()
	*b = (*b)[:n]
	return b
}

func (p *framePool) take() *[]byte {
	p.mu.Lock()
	if last := len(p.idle) - 1; last >= 0 {
		b := p.idle[last]
		p.idle = p.idle[:last]
		p.mu.Unlock()
		return b
	}
	p.mu.Unlock()
	if b, ok := p.more.Get().(*[]byte); ok {
		return b
	}
	b := make([]byte, frameSize)
	return &b
}

// Put implements mem.BufferPool.
func (p *framePool) Put(b *[]byte) {
	if cap(*b) != frameSize {
		p.other.Put(b)
		return
	}
	p.mu.Lock()
	if len(p.idle) < maxIdleFrames {
		p.idle = append(p.idle, b)
		p.mu.Unlock()
		return
	}
	p.mu.Unlock()
	p.more.Put(b)
}
