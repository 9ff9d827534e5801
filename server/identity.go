package server

import (
	"context"
	"net"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/identity"
	"github.com/tryst-rdma/tryst/rendezvous"
)

// hostOf returns the host of a task's address in the cluster.
func (n *node) hostOf(task cluster.Task) (host string, ok bool) {
	address, ok := n.members.Spec().Address(task)
	if !ok {
		return "", false
	}
	host, _, err := net.SplitHostPort(address)
	return host, err == nil
}

// checkPuller refuses a puller that uses the name of another process, or of a task that has left the cluster.
func (n *node) checkPuller(ctx context.Context, puller cluster.Task) error {
	if n.left(puller) {
		return taskLeft(puller)
	}
	return identity.Of(ctx).Check(puller, n.members.Spec().Place(puller).Host)
}

// receiverOf returns the check of what a peer of verbs requests, whose name is proven.
func (n *node) receiverOf(peer cluster.Task) func(rendezvous.Key) (rendezvous.Guard, error) {
	id := identity.Identity{Proven: true, Tasks: []cluster.Task{peer}}
	if host := n.members.Spec().Place(peer).Host; host != "" {
		id.Hosts = []string{host}
	}
	covers := id.CheckReceiver
	return func(key rendezvous.Key) (rendezvous.Guard, error) {
		w := n.lateWorker.Load()
		if w == nil {
			return nil, nil // nobody requests from a client
		}
		return w.CheckReceiver(key, covers)
	}
}
