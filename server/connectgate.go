package server

import (
	"context"
	"sync"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
	verbstransport "github.com/tryst-rdma/tryst/transport/verbs"
)

// connectWait bounds how long a client's first receives wait for a channel. It takes two
// calls and a message each way where verbs works, and an answer where it does not.
const connectWait = time.Second

// meeting holds a client's first receives back until it has its channel, or knows why
// there is none. Without it they would go over gRPC while the channel comes up, and they
// may be all that the client came for.
type connectGate struct {
	transport *verbstransport.RdmaRemoteRendezvous
	ctx       context.Context // ends with the client
	work      sync.WaitGroup

	mu    sync.Mutex // guards what follows
	begun bool
	over  bool
	held  []func()
}

// after calls receive when the meeting is over; at once when it is. receive must not
// block.
func (m *connectGate) after(task cluster.Task, receive func()) {
	m.mu.Lock()
	if m.over || m.ctx.Err() != nil {
		m.mu.Unlock()
		receive()
		return
	}
	defer m.mu.Unlock()
	m.held = append(m.held, receive)
	if !m.begun {
		m.begun = true
		m.work.Go(func() { m.meet(task) }) // close waits for it
	}
}

// close waits for the meeting, when its context has ended: none begins any more.
func (m *connectGate) close() {
	m.mu.Lock()   // whoever saw the context alive has begun
	m.mu.Unlock() //nolint:staticcheck // it is enough to have had it
	m.work.Wait()
}

// wait returns when the meeting is over, or ctx has ended.
func (m *connectGate) wait(ctx context.Context, task cluster.Task) {
	m.mu.Lock()
	over := m.over
	m.mu.Unlock()
	if over {
		return
	}
	turn := make(chan struct{})
	m.after(task, func() { close(turn) })
	select {
	case <-turn:
	case <-ctx.Done():
	}
}

func (m *connectGate) meet(task cluster.Task) {
	ctx, cancel := context.WithTimeout(m.ctx, connectWait)
	defer cancel()
	_ = m.transport.Await(ctx, task) // why not is logged, and told by Link
	for {
		m.mu.Lock()
		held := m.held
		m.held = nil
		m.over = len(held) == 0 // none overtakes those that came before it
		m.mu.Unlock()
		if len(held) == 0 {
			return
		}
		for _, receive := range held {
			receive()
		}
	}
}
