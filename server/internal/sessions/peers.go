// Package sessions reaches the tasks of the clusters that TensorFlow masters propagate to sessions, and finds out
// which of them are tasks of the process's own cluster.
package sessions

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/tensorflow/worker"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/server/internal/memory"
	"github.com/tryst-rdma/tryst/server/internal/metrics"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/transport"
	grpctransport "github.com/tryst-rdma/tryst/transport/grpc"
)

// peers reaches the tasks of a cluster that a master has propagated to one session. A task at
// the address of a task of the process's cluster is reached by the transport of the process, under
// the name that it has there; the keys keep the names of the session. Any other task is reached over
// gRPC connections that the session owns: verbs knows the tasks of one cluster only. These connections are bounded
// (conns), and end when the session does not use them.
//
// The session keeps the cluster that it began with: a task that leaves that of the process, or moves there, is reached
// as any other from then on.
type peers struct {
	process transport.Transport
	cluster func() *cluster.Spec       // of the process, at present
	known   map[cluster.Task]knownTask // by the names of the session
	conns   *grpctransport.Conns
	own     *grpctransport.RpcRemoteRendezvous
}

// knownTask is a task of a session's cluster that the process's cluster had when the session began.
type knownTask struct {
	task    cluster.Task // its name there
	address string
}

// Options are what sessions use of the process.
type Options struct {
	Task      cluster.Task
	Spec      func() *cluster.Spec // returns its present cluster
	Transport transport.Transport  // to the tasks of its cluster

	// What follows is for the gRPC connections to other tasks.
	Process           transport.Process
	Local             transport.Worker // the worker of the process
	Dial              grpctransport.DialOptions
	Idle, PeerTimeout time.Duration
	Allocator         tensor.Allocator
	Transfers         *transport.Log
	Memory            *memory.Budget // bounds the connections
	Logger            *slog.Logger
}

// Sessions makes the peers of sessions.
type Sessions struct {
	Options
	conns *conns
}

// New returns the Sessions of a process.
func New(o Options) *Sessions { return &Sessions{o, newConns(o.Memory, o.Logger)} }

// AddMetrics adds the metrics of the connections.
func (s *Sessions) AddMetrics(to *metrics.Metrics) {
	to.Add(s.conns.refused)
	to.Gauge("tryst_session_connections", "Connections to tasks that only the clusters of sessions have.", s.conns.connections)
}

// Peers makes the peers of a session with a cluster, in which this process has the name self. The session closes
// them.
func (s *Sessions) Peers(self cluster.Task, spec *cluster.Spec) (worker.Peers, error) {
	own := &share{conns: s.conns}
	here := s.spec()
	p := &peers{process: s.Transport, cluster: s.spec, known: make(map[cluster.Task]knownTask)}
	for name, task := range s.knownAs(here, spec) {
		address, _ := here.Address(task)
		p.known[name] = knownTask{task, address}
	}
	p.conns = grpctransport.NewConns(grpctransport.ConnsOptions{
		Self: self, Local: s.Local, Spec: spec, Renamed: true, Allocator: s.Allocator, Log: s.Transfers, Dial: s.Dial, Idle: s.Idle,
		Responses: s.Memory.Answers, Bounds: &grpctransport.Bounds{Place: own.place},
	})
	p.own = grpctransport.New(grpctransport.Options{Self: s.Process, Conns: p.conns, PeerTimeout: s.PeerTimeout, Logger: s.conns.logger()})
	return p, nil
}

// spec returns the present cluster of the process.
func (s *Sessions) spec() *cluster.Spec {
	if s.Spec == nil {
		return nil
	}
	return s.Spec()
}

// knownAs returns the names of other tasks in the process's cluster, by the names that a session
// gives to their addresses. If several tasks have one address, only an equal name decides.
func (s *Sessions) knownAs(process, session *cluster.Spec) map[cluster.Task]cluster.Task {
	at := make(map[string][]cluster.Task)
	for _, t := range process.Tasks() {
		if t != s.Task {
			address, _ := process.Address(t)
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

// Places returns where the tasks of a session's cluster are: which tasks of the process's cluster they
// are, or the hosts of their addresses.
func (s *Sessions) Places(session *cluster.Spec) map[cluster.Task]cluster.Place {
	process := s.spec()
	known, places := s.knownAs(process, session), make(map[cluster.Task]cluster.Place)
	self, _ := process.Address(s.Task)
	for _, t := range session.Tasks() {
		address, _ := session.Address(t)
		here, ok := known[t]
		switch {
		case ok:
			places[t] = process.Place(here)
		case self != "" && cluster.CanonicalAddress(self) == cluster.CanonicalAddress(address):
			places[t] = process.Place(s.Task)
		default:
			p := session.Place(t)
			p.Elsewhere = true
			places[t] = p
		}
	}
	return places
}

// RecvFromRemoteAsync implements rendezvous.Remoter.
func (p *peers) RecvFromRemoteAsync(step int64, key rendezvous.Key, args rendezvous.Args, done rendezvous.DoneFunc) rendezvous.Transfer {
	if known, ok := p.known[key.Src().Task]; ok {
		if at, _ := p.cluster().Address(known.task); at == known.address {
			return p.process.RecvFrom(known.task, step, key, args, done)
		}
	}
	return p.own.RecvFromRemoteAsync(step, key, args, done)
}

// Close implements worker.Peers.
func (p *peers) Close(ctx context.Context) error {
	return errors.Join(p.own.Close(ctx), p.conns.Close())
}
