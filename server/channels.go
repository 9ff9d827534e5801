package server

import (
	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/transport"
)

// checkPeer makes channels with a peer find out whether it is still there, since a connection with it
// has ended.
func (n *node) checkPeer(task cluster.Task) {
	if n.rdma != nil {
		n.rdma.Transport.CheckPeer(task)
	}
}

// leftGeneration returns the function that checks and closes channels which requesters of the
// gRPC service have left; nil without verbs.
func (n *node) leftGeneration() func(transport.Process, uint64) (leave func(), err error) {
	if n.rdma == nil {
		return nil
	}
	return n.rdma.Transport.LeftGeneration
}
