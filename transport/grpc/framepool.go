package grpctransport

import (
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/mem"

	"github.com/tryst-rdma/tryst/internal/idle"
)

// framePool allocates the buffers into which gRPC reads frames. gRPC's own pool clears each
// buffer before use, which is one more pass over all received bytes. The garbage collector
// empties that pool, very often in a process with a small heap. A framePool does not clear
// buffers and keeps up to maxIdleFrames of them from the collector, until they are not used for a
// while.
type framePool struct {
	mu     sync.Mutex     // guards idle and unused
	idle   []*[]byte      // of frameSize each, at most maxIdleFrames
	unused int            // the smallest length of idle since the last drop
	more   sync.Pool      // of frameSize each; the collector may free them
	other  mem.BufferPool // for other sizes
	timer  *idle.Timer    // runs while buffers are kept
}

func newFramePool(after time.Duration) *framePool {
	if after == 0 {
		after = idle.DefaultTime
	}
	p := &framePool{other: mem.DefaultBufferPool()}
	p.timer = idle.NewTimer(after, p.drop)
	return p
}

// drop frees the buffers that nothing has used since the last call.
func (p *framePool) drop(time.Duration) (more bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idle = slices.Delete(p.idle, 0, p.unused)
	if p.unused = len(p.idle); p.unused == 0 {
		p.idle = nil
	}
	return p.idle != nil
}

// kept returns the bytes of the buffers that are kept.
func (p *framePool) kept() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return int64(len(p.idle)) * frameSize
}

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
		p.unused = min(p.unused, last)
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
		p.timer.Start()
		return
	}
	p.mu.Unlock()
	p.more.Put(b)
}
