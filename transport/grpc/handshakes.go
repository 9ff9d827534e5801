package grpctransport

import (
	"net"
	"sync"
	"time"

	"github.com/tryst-rdma/tryst/status"
)

// Handshakes are the connections of a server under TLS and HTTP/2 handshake. gRPC waits for them
// when the server stops, gracefully or not, and a silent client would make it wait for connectMax.
// The zero value has none. It is safe for concurrent use.
type Handshakes struct {
	mu    sync.Mutex // guards what follows
	conns map[net.Conn]struct{}
	ended bool
}

// End ends all handshakes in progress, and those to come. Connections that have completed theirs
// are not affected. Call it before the server stops.
func (h *Handshakes) End() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended = true
	for raw := range h.conns {
		_ = raw.SetDeadline(time.Now()) // fails only for a closed connection; gRPC removes it when it goes on
	}
}

// begin adds a connection. It returns Unavailable after End.
func (h *Handshakes) begin(raw net.Conn) error {
	if h == nil {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended {
		return status.Errorf(status.Unavailable, "a connection from %v came while the server stops; connect again later", raw.RemoteAddr())
	}
	if h.conns == nil {
		h.conns = make(map[net.Conn]struct{})
	}
	h.conns[raw] = struct{}{}
	return nil
}

// done removes a connection. It may be called more than once.
func (h *Handshakes) done(raw net.Conn) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.conns, raw)
}
