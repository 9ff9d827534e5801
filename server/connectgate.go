package server

import (
	"context"
	"sync"

	"github.com/tryst-rdma/tryst/cluster"
	verbstransport "github.com/tryst-rdma/tryst/transport/verbs"
)

// connectGate delays the first receives of a client until its channel is up or has failed.
// Otherwise they would go over gRPC while the channel is connecting, and a short-lived client
// has no others.
type connectGate struct {
	transport *verbstransport.RdmaRemoteRendezvous
	ctx       context.Context // ends with the client
	cancel    context.CancelFunc
	work      sync.WaitGroup

	mu      sync.Mutex // guards what follows
	started bool
	open    bool     // receives do not wait any more
	held    []func() // receives that wait, in the order of their calls
}

// run calls receive when the gate is open: at once if it is. receive must not block.
func (g *connectGate) run(task cluster.Task, receive func()) {
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
		g.work.Go(func() { g.connect(task) }) // close waits for it
	}
}

// close ends the waits at the gate, and waits for connect.
func (g *connectGate) close() {
	g.cancel()    // no connect starts any more
	g.mu.Lock()   // a run that found the context alive has started connect
	g.mu.Unlock() //nolint:staticcheck // the empty section waits for such a run
	g.work.Wait()
}

// wait returns when the gate is open or ctx has ended.
func (g *connectGate) wait(ctx context.Context, task cluster.Task) {
	g.mu.Lock()
	open := g.open
	g.mu.Unlock()
	if open {
		return
	}
	opened := make(chan struct{})
	g.run(task, func() { close(opened) })
	select {
	case <-opened:
	case <-ctx.Done():
	}
}

// connect waits for the channel, then opens the gate.
func (g *connectGate) connect(task cluster.Task) {
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
