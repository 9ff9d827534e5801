package server

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/transport/identity"
	verbstransport "github.com/tryst-rdma/tryst/transport/verbs"
)

const (
	// refusedNamePause is how long the log is silent about a caller after a line about it.
	refusedNamePause = time.Minute
	// maxRefusedNames bounds the callers that have a line of their own in refusedNamePause. Beyond
	// it refusals are only counted.
	maxRefusedNames = 60
)

// overVerbs is the label of requests over a channel in tryst_refused_names_total.
const overVerbs = "REQUEST"

// refusedNames counts and logs the requests that are refused because the caller has not proven the name
// that they need.
type refusedNames struct {
	log     *slog.Logger
	refused *prometheus.CounterVec

	mu     sync.Mutex // guards what follows
	logged map[string]time.Time
}

func newRefusedNames(log *slog.Logger) *refusedNames {
	return &refusedNames{log: log, logged: make(map[string]time.Time), refused: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "tryst_refused_names_total", Help: "Requests refused because the caller may not use the name that they need, by method; REQUEST is one over verbs.",
	}, []string{"method"})}
}

// call notes the end of a call.
func (r *refusedNames) call(ctx context.Context, method string, err error) {
	if grpcstatus.Code(err) != codes.PermissionDenied {
		return
	}
	from := ""
	if p, ok := peer.FromContext(ctx); ok {
		from = p.Addr.String()
	}
	r.add(method[strings.LastIndexByte(method, '/')+1:], identity.Source(ctx), from, grpcstatus.Convert(err).Message())
}

// request notes the refusal of a request over verbs.
func (r *refusedNames) request(peer cluster.Task, err error) {
	name := peer.String()
	r.add(overVerbs, name, name, err.Error())
}

// add counts a refusal. It logs one of a caller in refusedNamePause.
func (r *refusedNames) add(method, caller, from, reason string) {
	r.refused.WithLabelValues(method).Inc()
	if now := time.Now(); r.first(caller, now) {
		r.log.Warn("refusing a name; the caller of a request may not use the name that it needs", "method", method, "from", from, "reason", reason)
	}
}

func (r *refusedNames) first(caller string, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if last, ok := r.logged[caller]; ok && now.Sub(last) < refusedNamePause {
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
	r.logged[caller] = now
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
		o.Receiver, o.Refused = n.receiverOf, n.metrics.names.request
	}
}
