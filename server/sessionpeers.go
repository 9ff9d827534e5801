package server

import (
	"context"
	"errors"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/rendezvous"
	grpctransport "github.com/tryst-rdma/tryst/transport/grpc"
	"github.com/tryst-rdma/tryst/worker"
)

// sessionPeers reaches the tasks of a cluster that a master has propagated to one session. A task that
// the cluster of this process has too, with the same name and address, is reached by the transport of
// the process; any other one over gRPC connections that the session owns, since verbs knows
// the names of one cluster only.
type sessionPeers struct {
	process rendezvous.Remoter
	known   *cluster.Spec // of the process
	spec    *cluster.Spec // of the session
	conns   *grpctransport.Conns
	own     *grpctransport.RpcRemoteRendezvous
}

// newPeers makes the peers of a session, in which this process has the name self.
func (n *node) newPeers(self cluster.Task, spec *cluster.Spec) (worker.Peers, error) {
	p := &sessionPeers{process: n.remoter(), known: n.spec, spec: spec}
	p.conns = grpctransport.NewConns(grpctransport.ConnsOptions{
		Self: self, Local: n.self, Spec: spec, Renamed: true, Allocator: n.allocator, Log: n.transfers, Dial: n.dial, Idle: n.releaseAfter,
	})
	p.own = grpctransport.New(grpctransport.Options{
		Self: n.process(), Conns: p.conns, PeerTimeout: n.peerTimeout, Logger: n.log,
	})
	return p, nil
}

// RecvFromRemoteAsync implements rendezvous.Remoter.
func (p *sessionPeers) RecvFromRemoteAsync(step int64, key rendezvous.Key, args rendezvous.Args, done rendezvous.DoneFunc) rendezvous.Transfer {
	if p.shared(key.Src().Task) {
		return p.process.RecvFromRemoteAsync(step, key, args, done)
	}
	return p.own.RecvFromRemoteAsync(step, key, args, done)
}

// shared reports whether a task is the same one in the cluster of the process.
func (p *sessionPeers) shared(t cluster.Task) bool {
	here, ok := p.known.Address(t)
	there, same := p.spec.Address(t)
	return ok && same && here == there
}

// Close implements worker.Peers.
func (p *sessionPeers) Close(ctx context.Context) error {
	return errors.Join(p.own.Close(ctx), p.conns.Close())
}
