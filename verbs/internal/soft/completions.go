package soft

import (
	"sync/atomic"

	"github.com/tryst-rdma/tryst/verbs"
)

// Completions delivers the completions and events of a queue pair, which embeds it. The lock of the
// queue pair guards it.
type Completions struct {
	Send, Recv *CQ
	// Calling: the goroutine that holds the lock calls the handlers of OnEvent, after TakeFired.
	Calling bool

	dev    *Device
	number verbs.QPN
	owner  any // the queue pair, a pointer
	fired  []*CQ
}

// Init is called before the first completion. owner is the queue pair, a pointer.
func (q *Completions) Init(d *Device, number verbs.QPN, owner any, send, recv *CQ) {
	q.dev, q.number, q.owner, q.Send, q.Recv = d, number, owner, send, recv
}

// SendCompleted adds a completion of the send queue. Polling it stores freedTo in freed.
func (q *Completions) SendCompleted(wc verbs.WC, freed *atomic.Uint64, freedTo uint64) {
	q.push(q.Send, wc, freed, freedTo, false)
}

// RecvCompleted adds a completion of the receive queue.
func (q *Completions) RecvCompleted(wc verbs.WC, freed *atomic.Uint64, freedTo uint64, solicited bool) {
	q.push(q.Recv, wc, freed, freedTo, solicited)
}

// push adds a completion to a completion queue. A full queue loses the completion, and its polls
// return an error.
func (q *Completions) push(c *CQ, wc verbs.WC, freed *atomic.Uint64, freedTo uint64, solicited bool) {
	wc.QPN = q.number
	fired, space := c.Push(Completion{WC: wc, Freed: freed, FreedTo: freedTo, Owner: q.owner}, solicited, q.Calling)
	if fired {
		q.fired = append(q.fired, c)
	}
	if !space {
		q.dev.Event(verbs.AsyncEvent{Kind: verbs.EventCQError})
	}
}

// TakeFired appends to list the completion queues whose handlers are to be called (CQ.Call).
func (q *Completions) TakeFired(list []*CQ) []*CQ {
	list = append(list, q.fired...)
	q.fired = q.fired[:0]
	return list
}

// Event reports an asynchronous event of the queue pair.
func (q *Completions) Event(kind verbs.EventKind) {
	q.dev.Event(verbs.AsyncEvent{Kind: kind, QPN: q.number})
}

// Purge removes the completions of the queue pair.
func (q *Completions) Purge() {
	q.Send.Purge(q.owner)
	q.Recv.Purge(q.owner)
}
