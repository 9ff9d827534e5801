package transport

import (
	"context"
	"sync"

	"github.com/tryst-rdma/tryst/tensor"
)

// ResponseMemory keeps what was reserved for the response of a call until the response is written. A client that does
// not read its responses so holds memory that counts. It is safe for concurrent use.
type ResponseMemory struct {
	mu       sync.Mutex // guards what follows
	held     []*tensor.Buffer
	released bool
}

// hold takes over references.
func (m *ResponseMemory) hold(all []*tensor.Buffer) {
	m.mu.Lock()
	if !m.released {
		m.held, all = append(m.held, all...), nil
	}
	m.mu.Unlock()
	release(all)
}

func release(all []*tensor.Buffer) {
	for _, b := range all {
		b.Release()
	}
}

// Release gives back all that is held, and at once what is held later.
func (m *ResponseMemory) Release() {
	m.mu.Lock()
	held := m.held
	m.held, m.released = nil, true
	m.mu.Unlock()
	release(held)
}

type responseMemoryKey struct{}

// WithResponseMemory returns a context whose calls of HoldForResponse go to m. The caller must call m.Release.
func WithResponseMemory(ctx context.Context, m *ResponseMemory) context.Context {
	return context.WithValue(ctx, responseMemoryKey{}, m)
}

// HoldForResponse keeps reservations of memory until the response of the call of ctx is written. It takes over the
// references. Where nothing writes a response, in a call of this process, it releases them at once: the caller has the
// response then.
func HoldForResponse(ctx context.Context, reserved ...*tensor.Buffer) {
	if m, ok := ctx.Value(responseMemoryKey{}).(*ResponseMemory); ok {
		m.hold(reserved)
		return
	}
	release(reserved)
}
