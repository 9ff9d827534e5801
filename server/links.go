package server

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/delivery"
	"github.com/tryst-rdma/tryst/server/internal/metrics"
	"github.com/tryst-rdma/tryst/server/internal/rdma"
	"github.com/tryst-rdma/tryst/transport"
	grpctransport "github.com/tryst-rdma/tryst/transport/grpc"
	verbstransport "github.com/tryst-rdma/tryst/transport/verbs"
)

// Link describes how this process and one peer reach each other.
type Link struct {
	// Task is the name of the peer.
	Task string `json:"task"`
	// Route is the transport that carries tensors at present: "verbs", "grpc", or "none"
	// while there is no channel and the settings allow nothing else (the setting fallback is none).
	Route string    `json:"route"`
	State LinkState `json:"state"`
	// Since is when Route or State changed last; zero if they have not changed yet.
	Since time.Time `json:"since,omitzero"`
	// Of a client that has left (LinkGone), Route, Over and Device are those of the last channel.
	// Reason is why the route is not verbs, the last reason in words; empty for verbs.
	Reason string `json:"reason,omitempty"`
	// Error is why the peer was not reached, the last reason; empty while State is LinkUp, and
	// if nothing has failed.
	Error string `json:"error,omitempty"`

	// Over is the provider of the channel: "shm", "tcp", or "rdma" for libibverbs and roce. Routes
	// has each provider, the best one for this peer first, with the reason why it is not used.
	// Over is empty without a channel. Routes is nil in a process with RDMA alone or without verbs.
	Over   string      `json:"over,omitempty"`
	Routes []LinkRoute `json:"routes,omitempty"`
	// Device is the device of this process that the channel uses, LocalAddress its
	// address, and RemoteAddress that of the peer. QueuePairs is the number of queue pairs of
	// the channel. Generation counts the channels with this process of the peer. All are empty
	// for another route than verbs.
	Device        string `json:"device,omitempty"`
	LocalAddress  string `json:"local_address,omitempty"`
	RemoteAddress string `json:"remote_address,omitempty"`
	QueuePairs    int    `json:"queue_pairs,omitempty"`
	Generation    uint64 `json:"generation,omitempty"`
	// Dialed is the address of the gRPC connection to the peer; empty if this process has
	// made none.
	Dialed string `json:"dialed,omitempty"`
	// Breaks counts the verbs channels with the peer that broke or were closed; for a process
	// without verbs, how often the last gRPC connection to the peer has ended.
	Breaks uint64 `json:"breaks"`
}

// LinkRoute is a route to a peer, by one provider.
type LinkRoute struct {
	// Over is the provider, as in Link, and Device the device of this process; empty if it has none.
	Over   string `json:"over"`
	Device string `json:"device,omitempty"`
	// Used reports whether tensors take this route. Reason is why they do not.
	Used   bool   `json:"used"`
	Reason string `json:"reason,omitempty"`
}

// linkRoutes returns the routes of a connection.
func linkRoutes(v verbstransport.Connection) []LinkRoute {
	var all []LinkRoute
	for _, r := range v.Routes {
		all = append(all, LinkRoute{Over: r.Route, Device: r.Device, Used: r.Used, Reason: metrics.Label(r.Why)})
	}
	return all
}

// LinkState is the state of a Link.
type LinkState string

// The states of a link.
const (
	// LinkUp: a channel, or a gRPC connection in one of the two directions, is up.
	LinkUp LinkState = "up"
	// LinkConnecting: a channel or a connection is being made.
	LinkConnecting LinkState = "connecting"
	// LinkDown: there is neither. The next receive, or the next attempt after a pause, makes
	// one.
	LinkDown LinkState = "down"
	// LinkGone: a client was here and has no connection any more. This process has no address
	// to call it.
	LinkGone LinkState = "gone"
)

// Links returns the link to each peer: the other tasks of the cluster, and the clients that have
// come and are remembered. They are sorted by task.
func (s *Server) Links() []Link {
	spec := s.members.Spec()
	return s.links(s.peerStates(), spec.Tasks(), func(task cluster.Task) bool {
		_, ok := spec.Address(task)
		return ok
	})
}

// Links returns the link to the server. There is none before the server has told its name, which
// it does when it is dialed, or with the first tensor.
func (c *Client) Links() []Link {
	p := c.peerStates()
	dialed := p.dialed[serverTask]
	delete(p.dialed, serverTask)
	var tasks []cluster.Task
	if t := c.server.Load(); t != nil {
		tasks = append(tasks, *t)
		p.dialed[*t] = dialed
	}
	return c.links(p, tasks, func(cluster.Task) bool { return true })
}

// peerStates is what the parts of a node know about its peers.
type peerStates struct {
	verbs     map[cluster.Task]verbstransport.Connection
	dialed    map[cluster.Task]grpctransport.PeerState
	requester map[cluster.Task]delivery.RequesterState
	unreached map[cluster.Task]transport.Unreached
}

// links returns the links to some tasks, and to all other peers that are known. addressed reports
// whether this process has the address of a peer.
func (n *node) links(p peerStates, tasks []cluster.Task, addressed func(cluster.Task) bool) []Link {
	known := make(map[cluster.Task]struct{})
	for _, some := range []iter.Seq[cluster.Task]{slices.Values(tasks), maps.Keys(p.verbs), maps.Keys(p.dialed), maps.Keys(p.requester), maps.Keys(p.unreached)} {
		for task := range some {
			known[task] = struct{}{}
		}
	}
	delete(known, n.task)
	all := make([]Link, 0, len(known))
	for _, task := range slices.SortedFunc(maps.Keys(known), cluster.Task.Compare) {
		all = append(all, n.link(task, &p, addressed(task)))
	}
	return all
}

// peerStates asks the transports and the response cache.
func (n *node) peerStates() peerStates {
	p := peerStates{
		verbs: make(map[cluster.Task]verbstransport.Connection), dialed: make(map[cluster.Task]grpctransport.PeerState),
		requester: make(map[cluster.Task]delivery.RequesterState), unreached: make(map[cluster.Task]transport.Unreached),
	}
	for _, d := range n.conns.Peers() {
		p.dialed[d.Task] = d
	}
	for _, r := range n.cache.Requesters() {
		if task, err := cluster.ParseTask(r.Name); err == nil {
			p.requester[task] = r
		}
	}
	unreached := n.transport.Unreached
	if n.rdma != nil {
		unreached = n.rdma.Transport.Unreached
		for _, v := range n.rdma.Transport.Connections() {
			if !v.StateSince.IsZero() { // without a time: the sums of clients that were forgotten
				p.verbs[v.Task] = v
			}
		}
	}
	for _, u := range unreached() {
		p.unreached[u.Task] = u
	}
	return p
}

// link makes the link to a peer.
func (n *node) link(task cluster.Task, p *peerStates, addressed bool) Link {
	v, hasVerbs := p.verbs[task]
	d, lost := p.dialed[task], p.unreached[task]
	r := p.requester[task]
	l := Link{Task: task.String(), Route: grpctransport.Name, Dialed: d.Address, Breaks: d.Breaks}
	required := false
	switch {
	case n.rdma == nil:
		l.Reason = "the setting transport is " + grpctransport.Name
	case hasVerbs:
		required = n.rdma.Required
		l.Route, l.Reason = rdma.CurrentRoute(v, required)
		l.Breaks, l.Over, l.Routes = v.Stats.Breaks, v.Route, linkRoutes(v)
	default:
		required = n.rdma.Required
		l.Breaks, l.Reason = 0, "neither side has asked for a channel"
		if required {
			l.Route = rdma.NoRoute
		}
	}
	if v.Verbs {
		l.State, l.Since = LinkUp, v.Since
		l.Device, l.LocalAddress, l.RemoteAddress = v.Device, v.Local.String(), v.Remote.String()
		l.QueuePairs, l.Generation = v.QueuePairs, v.Generation
		return l
	}
	switch {
	case !required && (d.Up || r.Connected):
		l.State, l.Since = LinkUp, latest(v.Since, upSince(d, r))
	case v.State == verbstransport.StateHandshake || !required && d.Connecting || lost.Seeking:
		l.State = LinkConnecting
	case addressed:
		l.State = LinkDown
	default:
		l.State = LinkGone
		if v.LastRoute != "" { // that it has left is no failure of the route
			l.Route, l.Over, l.Device, l.Reason = verbstransport.Name, v.LastRoute, v.LastDevice, ""
			l.Routes = nil
		}
	}
	if l.State != LinkUp {
		l.Since = latest(v.Since, v.StateSince, d.Since, r.Since)
	}
	if err := cmp.Or(lost.Err, d.Err); err != nil && l.State != LinkUp {
		l.Error = metrics.Label(err.Error())
	}
	return l
}

// upSince returns when the first of the two directions of gRPC was up that are up now.
func upSince(d grpctransport.PeerState, r delivery.RequesterState) time.Time {
	if !r.Connected || d.Up && d.Since.Before(r.Since) {
		return d.Since
	}
	return r.Since
}

func latest(times ...time.Time) time.Time {
	return slices.MaxFunc(times, time.Time.Compare)
}
