package rdma

import (
	"context"
	"sync"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
	verbstransport "github.com/tryst-rdma/tryst/transport/verbs"
)

// Gate delays the first receives of a client until its channel is up or has failed.
// Otherwise they would go over gRPC while the channel is connecting, and a short-lived client
// has no others.
type Gate struct {
	transport *verbstransport.RdmaRemoteRendezvous
	ctx       context.Context // ends with the client
	cancel    context.CancelFunc
	work      sync.WaitGroup

	mu      sync.Mutex // guards what follows
	started bool
	open    bool     // receives do not wait any more
	held    []func() // receives that wait, in the order of their calls
}

// connectWait bounds how long the first receives of a client wait for its channel. A channel
// takes two calls and one message in each direction; without verbs, one response.
const connectWait = time.Second

// NewGate makes a gate. Its owner closes it.
func NewGate(t *verbstransport.RdmaRemoteRendezvous) *Gate {
	g := &Gate{transport: t}
	g.ctx, g.cancel = context.WithCancel(context.Background())
	return g
}

// Run calls receive when the gate is open: at once if it is. receive must not block.
func (g *Gate) Run(task cluster.Task, receive func()) {
	g.mu.Lock()
	if g.open || g.ctx.Err() != nil {
		g.mu.Unlock()
		receive()
		return
	}
	defer g.mu.Unlock()
	g.held = append(g.held, receive)
	if !g.started {
		g.started = true
		g.work.Go(func() { g.connect(task) }) // Close waits for it
	}
}

// Close ends the waits at the gate, and waits for connect.
func (g *Gate) Close() {
	g.cancel()    // no connect starts any more
	g.mu.Lock()   // a Run that found the context alive has started connect
	g.mu.Unlock() //nolint:staticcheck // the empty section waits for such a Run
	g.work.Wait()
}

// Wait returns when the gate is open or ctx has ended.
func (g *Gate) Wait(ctx context.Context, task cluster.Task) {
	g.mu.Lock()
	open := g.open
	g.mu.Unlock()
	if open {
		return
	}
	opened := make(chan struct{})
	g.Run(task, func() { close(opened) })
	select {
	case <-opened:
	case <-ctx.Done():
	}
}

// connect waits for the channel, then opens the gate.
func (g *Gate) connect(task cluster.Task) {
	ctx, cancel := context.WithTimeout(g.ctx, connectWait)
	defer cancel()
	_ = g.transport.Await(ctx, task) // the transport logs why there is no channel
	for {
		g.mu.Lock()
		held := g.held
		g.held = nil
		g.open = len(held) == 0 // no receive overtakes an earlier one
		g.mu.Unlock()
		if len(held) == 0 {
			return
		}
		for _, receive := range held {
			receive()
		}
	}
}
