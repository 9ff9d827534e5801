package verbstransport

import "github.com/tryst-rdma/tryst/cluster"

// Traffic is what verbs has carried to and from a task.
type Traffic struct {
	Task cluster.Task
	// Route is that of the channel that is up, or of the last one: "shm", "rdma" or "tcp"; empty before the first.
	Route string

	Received, ReceivedBytes, Sent, SentBytes uint64
}

// Traffic calls f with what each task was sent and has sent, in no order. It is cheap enough for each second: it
// takes the lock of a peer for one field.
func (t *RdmaRemoteRendezvous) Traffic(f func(Traffic)) {
	for _, p := range t.all() {
		c := &p.counters
		p.mu.Lock()
		route := p.lastRoute
		p.mu.Unlock()
		f(Traffic{
			Task: p.task, Route: route,
			Received: c.received.Load(), ReceivedBytes: c.receivedBytes.Load(), Sent: c.sent.Load(), SentBytes: c.sentBytes.Load(),
		})
	}
}
