package verbstransport

import (
	"time"

	"github.com/tryst-rdma/tryst/cluster"
)

// Tasks that leave the cluster, or get another address.

// Leave ends what this process has with a task that has left the cluster: receives from it end with err, and its
// channels are closed with a BYE. The task is refused while Options.Left reports it. gone is closed when all queue pairs
// are destroyed and their memory is back.
func (t *RdmaRemoteRendezvous) Leave(task cluster.Task, err error) (gone <-chan struct{}) {
	t.mu.Lock()
	p := t.peers[task]
	if p != nil {
		t.dropLocked(p)
	}
	t.mu.Unlock()
	t.requester.Leave(task, err)
	if p == nil {
		ended := make(chan struct{})
		close(ended)
		return ended
	}
	return p.leaveCluster(err)
}

// Joined is the event that tasks have come to the cluster (Options.Callable). The record of one that has called before is
// that of a client, and becomes one of a peer. Each is called, as by Connect, unless nobody has asked for verbs
// (Options.Optional): then the first receive, or what is owed to one that has come back, has its channel made.
func (t *RdmaRemoteRendezvous) Joined(tasks ...cluster.Task) {
	for _, task := range tasks {
		if p := t.takeClient(task); p != nil {
			p.addressed()
		}
		t.requester.Joined(task)
	}
	if !t.opts.Optional {
		t.Connect(tasks...)
	}
}

// takeClient returns the record of a client, which is none any more; nil for any other task.
func (t *RdmaRemoteRendezvous) takeClient(task cluster.Task) *peer {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.peers[task]
	if p == nil || !p.client.Load() {
		return nil
	}
	p.client.Store(false)
	t.clients.release(p.address)
	return p
}

// Moved is the event that a task has another address (Options.Bootstrap, Target): channels to the process at the earlier
// one are left because of why, and the new one is called. Receives that are under way are sent again, and end if the
// process there is another one.
func (t *RdmaRemoteRendezvous) Moved(task cluster.Task, why error) {
	t.mu.Lock()
	p := t.peers[task]
	t.mu.Unlock()
	if p == nil {
		return
	}
	for _, l := range p.existing() {
		l.leave(why)
	}
	p.connectNow()
}

// leaveCluster ends the record of a peer because of why. It returns what is closed when nothing of it is left.
func (p *peer) leaveCluster(why error) <-chan struct{} {
	p.mu.Lock()
	p.gone, p.closing, p.expected, p.ended = true, true, time.Time{}, make(chan struct{})
	ended := p.ended
	if p.timer != nil {
		p.timer.Stop()
	}
	for _, r := range p.routes {
		if r.timer != nil {
			r.timer.Stop()
		}
		r.take(r.machine.End(time.Now(), why))
	}
	p.signal()
	p.noteEnd()
	p.unlock()
	return ended
}

// noteEnd closes p.ended when a peer that has left the cluster has no link any more, and nothing makes one. Called with
// mu held.
func (p *peer) noteEnd() {
	if p.ended == nil {
		return
	}
	for _, r := range p.routes {
		if r.running || len(r.actions)+len(r.links) > 0 {
			return
		}
	}
	select {
	case <-p.ended:
	default:
		close(p.ended)
	}
}
