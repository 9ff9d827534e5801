package delivery

import (
	"time"

	"github.com/tryst-rdma/tryst/cluster"
)

// Tasks that receives come from may leave the cluster and come back. They then learn which values have arrived and which
// receives were cancelled. Otherwise they would keep those values until the step ends.

// pastDebt is a debt to a task that has left the cluster.
type pastDebt struct {
	debt
	since time.Time
}

// Leave ends the receives from a task with err, and forgets the task: it has left the cluster. It gets no
// acknowledgement any more, unless it comes back within ten minutes. A later receive begins anew, with what
// RequesterOptions.Conn returns then.
func (r *Requester) Leave(task cluster.Task, err error) {
	now := time.Now()
	r.mu.Lock()
	p := r.peers[task]
	delete(r.peers, task)
	r.mu.Unlock()
	if p == nil {
		return
	}
	p.mu.Lock()
	p.left, p.closed = err, true
	if p.timer != nil {
		p.timer.Stop()
	}
	acts, d := p.machine.leave(err)
	p.do(acts, err)
	if d.isNone() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed && r.peers[task] == nil {
		r.debts[task] = pastDebt{d, now}
		if r.forget == nil {
			r.forget = time.AfterFunc(rememberFor, r.forgetDebts)
		}
	}
}

// forgetDebts forgets debts that are old.
func (r *Requester) forgetDebts() {
	r.mu.Lock()
	defer r.mu.Unlock()
	now, next := time.Now(), time.Time{}
	for task, d := range r.debts {
		switch due := d.since.Add(rememberFor); {
		case !now.Before(due):
			delete(r.debts, task)
		case next.IsZero() || due.Before(next):
			next = due
		}
	}
	if r.forget = nil; !next.IsZero() && !r.closed {
		r.forget = time.AfterFunc(next.Sub(now), r.forgetDebts)
	}
}

// Joined is the event that a task has come to the cluster. If it was there before, its process now learns what is owed to
// it.
func (r *Requester) Joined(task cluster.Task) {
	r.mu.Lock()
	_, owes := r.debts[task]
	r.mu.Unlock()
	if !owes {
		return
	}
	p, err := r.peer(task)
	if err != nil {
		return // nothing is received from it, either
	}
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return
	}
	p.do(p.machine.settle(time.Now()), nil)
}
