// Package refusals counts and logs the requests that a server refuses since their caller may not do what they
// need.
package refusals

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
)

// VerbsRequest is the label of requests over a channel in tryst_refused_names_total.
const VerbsRequest = "REQUEST"

// Log counts refusals, and logs one of a caller in pause.
type Log struct {
	log    *slog.Logger
	names  *prometheus.CounterVec // the caller has not proven the name that a request needs
	graphs prometheus.Counter     // a graph has an op that reaches more than the server allows

	mu     sync.Mutex // guards what follows
	logged map[refusal]time.Time
}

const (
	// pause is how long the log is silent about a caller after a line about it.
	pause = time.Minute
	// maxCallers bounds the callers that have a line of their own in pause. Beyond it refusals are only
	// counted.
	maxCallers = 60
)

// refusal is what has one line in pause.
type refusal struct {
	caller string
	graph  bool
}

// New returns the Log of a process, which logs to log.
func New(log *slog.Logger) *Log {
	return &Log{log: log, logged: make(map[refusal]time.Time), names: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "tryst_refused_names_total", Help: "Requests refused because the caller may not use the name that they need, by method; REQUEST is one over verbs.",
	}, []string{"method"}), graphs: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "tryst_refused_graphs_total", Help: "Graphs refused because an op reaches files, sockets or more of the server that it does not allow.",
	})}
}

// Collectors returns the metrics.
func (r *Log) Collectors() []prometheus.Collector { return []prometheus.Collector{r.names, r.graphs} }

// Call notes the end of a call. Its code alone does not tell: a kernel that may not open a file ends with
// PermissionDenied, too.
func (r *Log) Call(ctx context.Context, method string, err error) {
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
	caller, reason := identity.Address(ctx), grpcstatus.Convert(err).Message()
	if isGraph {
		r.graph(caller, from, reason)
		return
	}
	r.name(method[strings.LastIndexByte(method, '/')+1:], caller, from, reason)
}

// Request notes the refusal of a request over verbs.
func (r *Log) Request(peer cluster.Task, err error) {
	name := peer.String()
	r.name(VerbsRequest, name, name, err.Error())
}

// name counts a refused name. It logs one of a caller in pause.
func (r *Log) name(method, caller, from, reason string) {
	r.names.WithLabelValues(method).Inc()
	if r.first(refusal{caller, false}, time.Now()) {
		r.log.Warn("refusing a name; the caller of a request may not use the name that it needs", "method", method, "from", from, "reason", reason)
	}
}

// graph does the same for a graph.
func (r *Log) graph(caller, from, reason string) {
	r.graphs.Inc()
	if r.first(refusal{caller, true}, time.Now()) {
		r.log.Warn("refusing a graph; an op in it reaches more than this server allows", "from", from, "reason", reason)
	}
}

func (r *Log) first(what refusal, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if last, ok := r.logged[what]; ok && now.Sub(last) < pause {
		return false
	}
	for other, last := range r.logged {
		if now.Sub(last) >= pause {
			delete(r.logged, other)
		}
	}
	if len(r.logged) >= maxCallers {
		return false
	}
	r.logged[what] = now
	return true
}
