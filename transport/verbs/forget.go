package verbstransport

import (
	"errors"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/transport/verbs/internal/handshake"
)

// errForgotten says that a record of a peer is not the one of its task any more.
var errForgotten = errors.New("the peer has been forgotten")

// forget drops the records of peers that nobody can call and that have no channel,
// nor one in the making: processes that only pull have names of their own, and come
// and go for as long as a server lives. What went to and from them stays counted.
// Called with the lock held.
func (t *RdmaRemoteRendezvous) forget() {
	for task, p := range t.peers {
		if t.opts.Callable(task) || !p.retire() {
			continue
		}
		delete(t.peers, task)
		t.clients.give(p.source)
		if t.forgotten == nil {
			t.forgotten = &Link{Task: cluster.Task{Job: cluster.ClientJob}}
		}
		k := p.full() // nothing changes it any more
		t.forgotten.Stats.add(k.Stats)
		t.forgotten.Poll.Add(k.Poll)
	}
}

// hasRoomFor refuses the record of one more peer without an address, which has called
// from a source. Called with the lock held.
func (t *RdmaRemoteRendezvous) hasRoomFor(source string) error {
	const what = "peers that are in no cluster"
	if t.clients.hasRoom(source, what) == nil {
		return nil
	}
	t.forget()
	return t.clients.hasRoom(source, what)
}

// retire ends a record that is of no use; false for one that is.
func (p *peer) retire() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	state, _ := p.machine.State()
	if state != handshake.Down || p.acting || len(p.acts)+len(p.links)+len(p.requests) > 0 {
		return false
	}
	if p.timer != nil {
		p.timer.Stop()
	}
	p.gone = true
	return true
}
