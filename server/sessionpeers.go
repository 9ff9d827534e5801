package server

import (
	"context"
	"errors"
	"slices"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/tensorflow/worker"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/transport"
	grpctransport "github.com/tryst-rdma/tryst/transport/grpc"
)

// sessionPeers reaches the tasks of a cluster that a master has propagated to one session. A task at
// the address of a task of the process's cluster is reached by the transport of the process, under
// the name that it has there; the keys keep the names of the session. Any other task is reached over
// gRPC connections that the session owns: verbs knows the tasks of one cluster only. These connections are bounded
// (sessionConns), and end when the session does not use them.
type sessionPeers struct {
	process transport.Transport
	known   map[cluster.Task]cluster.Task // names in the process's cluster, by those of the session
	conns   *grpctransport.Conns
	own     *grpctransport.RpcRemoteRendezvous
}

// sessionPeersMaker returns what makes the peers of a session, in which this process has the name self. It adds the
// metrics of their connections.
func (n *node) sessionPeersMaker() func(self cluster.Task, spec *cluster.Spec) (worker.Peers, error) {
	conns := newSessionConns(n.budget, n.log)
	n.metrics.Add(conns.refused)
	n.metrics.Gauge("tryst_session_connections", "Connections to tasks that only the clusters of sessions have.", conns.connections)
	return func(self cluster.Task, spec *cluster.Spec) (worker.Peers, error) {
		return n.newPeers(self, spec, conns)
	}
}

func (n *node) newPeers(self cluster.Task, spec *cluster.Spec, conns *sessionConns) (worker.Peers, error) {
	share := &sessionShare{sessionConns: conns}
	p := &sessionPeers{process: n.remoter(), known: n.knownAs(spec)}
	p.conns = grpctransport.NewConns(grpctransport.ConnsOptions{
		Self: self, Local: n.self, Spec: spec, Renamed: true, Allocator: n.allocator, Log: n.transfers, Dial: n.dial, Idle: n.releaseAfter,
		Bounds: &grpctransport.Bounds{Place: share.place, Responses: conns.from},
	})
	p.own = grpctransport.New(grpctransport.Options{
		Self: n.process(), Conns: p.conns, PeerTimeout: n.peerTimeout, Logger: n.log,
	})
	return p, nil
}

// knownAs returns the names of other tasks in the process's cluster, by the names that a session
// gives to their addresses. If several tasks have one address, only an equal name decides.
func (n *node) knownAs(session *cluster.Spec) map[cluster.Task]cluster.Task {
	at := make(map[string][]cluster.Task)
	for _, t := range n.spec.Tasks() {
		if t != n.task {
			address, _ := n.spec.Address(t)
			address = cluster.CanonicalAddress(address)
			at[address] = append(at[address], t)
		}
	}
	known := make(map[cluster.Task]cluster.Task)
	for _, t := range session.Tasks() {
		address, _ := session.Address(t)
		switch here := at[cluster.CanonicalAddress(address)]; {
		case slices.Contains(here, t):
			known[t] = t
		case len(here) == 1:
			known[t] = here[0]
		}
	}
	return known
}

// places returns where the tasks of a session's cluster are: which tasks of the process's cluster they
// are, or the hosts of their addresses.
func (n *node) places(session *cluster.Spec) map[cluster.Task]cluster.Place {
	known, places := n.knownAs(session), make(map[cluster.Task]cluster.Place)
	self, _ := n.spec.Address(n.task)
	for _, t := range session.Tasks() {
		address, _ := session.Address(t)
		here, ok := known[t]
		switch {
		case ok:
			places[t] = n.spec.Place(here)
		case self != "" && cluster.CanonicalAddress(self) == cluster.CanonicalAddress(address):
			places[t] = n.spec.Place(n.task)
		default:
			p := session.Place(t)
			p.Elsewhere = true
			places[t] = p
		}
	}
	return places
}

// RecvFromRemoteAsync implements rendezvous.Remoter.
func (p *sessionPeers) RecvFromRemoteAsync(step int64, key rendezvous.Key, args rendezvous.Args, done rendezvous.DoneFunc) rendezvous.Transfer {
	if task, ok := p.known[key.Src().Task]; ok {
		return p.process.RecvFrom(task, step, key, args, done)
	}
	return p.own.RecvFromRemoteAsync(step, key, args, done)
}

// Close implements worker.Peers.
func (p *sessionPeers) Close(ctx context.Context) error {
	return errors.Join(p.own.Close(ctx), p.conns.Close())
}
