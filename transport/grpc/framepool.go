package grpctransport

import (
	"sync"

	"google.golang.org/grpc/mem"
)

// framePool is where gRPC takes the buffers that frames arrive in. gRPC's own
// pool clears each buffer before it is filled, which is one more pass over every
// byte that arrives, and garbage collections empty it, of which a process with
// little heap has hundreds a second. Here some buffers stay, and only what a
// large message needs beside them is the collector's.
type framePool struct {
	mu    sync.Mutex     // guards idle
	idle  []*[]byte      // of frameSize each, at most maxIdleFrames
	more  sync.Pool      // of the same
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
