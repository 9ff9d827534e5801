package verbstransport

import (
	"time"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/status"
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

func errLeft(task cluster.Task) *status.Error {
	return status.Errorf(status.FailedPrecondition, "the cluster has no task %v any more", task)
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
