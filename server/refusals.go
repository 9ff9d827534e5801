package server

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/identity"
	"github.com/tryst-rdma/tryst/internal/proto/tensorflowgrpc"
	"github.com/tryst-rdma/tryst/rendezvous"
	verbstransport "github.com/tryst-rdma/tryst/transport/verbs"
)

// overVerbs is the label of requests over a channel in tryst_refused_names_total.
const overVerbs = "REQUEST"

// refusalLog counts and logs the requests that are refused for what their caller may not do.
type refusalLog struct {
	log    *slog.Logger
	names  *prometheus.CounterVec // the caller has not proven the name that a request needs
	graphs prometheus.Counter     // a graph has an op that reaches more than the server allows

	mu     sync.Mutex // guards what follows
	logged map[refusal]time.Time
}

// refusal is what has one line in refusedNamePause.
type refusal struct {
	caller string
	graph  bool
}

func newRefusalLog(log *slog.Logger) *refusalLog {
	return &refusalLog{log: log, logged: make(map[refusal]time.Time), names: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "tryst_refused_names_total", Help: "Requests refused because the caller may not use the name that they need, by method; REQUEST is one over verbs.",
	}, []string{"method"}), graphs: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "tryst_refused_graphs_total", Help: "Graphs refused because an op reaches files, sockets or more of the server that it does not allow.",
	})}
}

// call notes the end of a call. Its code alone does not tell: a kernel that may not open a file ends with
// PermissionDenied, too.
func (r *refusalLog) call(ctx context.Context, method string, err error) {
	if grpcstatus.Code(err) != codes.PermissionDenied {
		return
	}
	_, isName := errors.AsType[cluster.NotProven](err)
	isGraph := !isName && method == tensorflowgrpc.WorkerService_RegisterGraph_FullMethodName
	if !isName && !isGraph {
		return
	}
	from := ""
	if p, ok := peer.FromContext(ctx); ok {
		from = p.Addr.String()
	}
	caller, reason := identity.Source(ctx), grpcstatus.Convert(err).Message()
	if isGraph {
		r.graph(caller, from, reason)
		return
	}
	r.name(method[strings.LastIndexByte(method, '/')+1:], caller, from, reason)
}

// request notes the refusal of a request over verbs.
func (r *refusalLog) request(peer cluster.Task, err error) {
	name := peer.String()
	r.name(overVerbs, name, name, err.Error())
}

// name counts a refused name. It logs one of a caller in refusedNamePause.
func (r *refusalLog) name(method, caller, from, reason string) {
	r.names.WithLabelValues(method).Inc()
	if r.first(refusal{caller, false}, time.Now()) {
		r.log.Warn("refusing a name; the caller of a request may not use the name that it needs", "method", method, "from", from, "reason", reason)
	}
}

// graph does the same for a graph.
func (r *refusalLog) graph(caller, from, reason string) {
	r.graphs.Inc()
	if r.first(refusal{caller, true}, time.Now()) {
		r.log.Warn("refusing a graph; an op in it reaches more than this server allows", "from", from, "reason", reason)
	}
}

func (r *refusalLog) first(what refusal, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if last, ok := r.logged[what]; ok && now.Sub(last) < refusedNamePause {
		return false
	}
	for other, last := range r.logged {
		if now.Sub(last) >= refusedNamePause {
			delete(r.logged, other)
		}
	}
	if len(r.logged) >= maxRefusedNames {
		return false
	}
	r.logged[what] = now
	return true
}

// checkPuller refuses a puller that uses the name of another process.
func (n *node) checkPuller(ctx context.Context, puller cluster.Task) error {
	return identity.Of(ctx).Check(puller, n.spec.Place(puller).Host)
}

// receiverOf returns the check of what a peer of verbs requests, whose name is proven.
func (n *node) receiverOf(peer cluster.Task) func(rendezvous.Key) (rendezvous.Guard, error) {
	id := identity.Identity{Proven: true, Tasks: []cluster.Task{peer}}
	if host := n.spec.Place(peer).Host; host != "" {
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

// proveReceivers makes the transport check the receiver that a key names, if mutual TLS proves the names of peers.
func (n *node) proveReceivers(o *verbstransport.Options) {
	if o.TLS == verbstransport.MutualTLS {
		o.Receiver, o.Refused = n.receiverOf, n.metrics.refusals.request
	}
}
