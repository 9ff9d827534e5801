package server

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/tryst-rdma/tryst/cluster"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/transport"
)

// metrics counts what a process moves. Peers are labels only where their number
// is bounded: the tasks that this process asks, and of those that ask it the ones
// that the cluster has; the others are one together (otherPeers).
type metrics struct {
	received, receivedBytes, retries *prometheus.CounterVec
	seconds                          *prometheus.HistogramVec
	sent, sentBytes                  *prometheus.CounterVec
	sendErrors                       *prometheus.CounterVec
	rpcs                             *prometheus.CounterVec
	rpcSeconds                       *prometheus.HistogramVec

	all        []prometheus.Collector
	registered bool // all of them

	last atomic.Pointer[arrivals] // those of the last tensor: the next is from there, too, as a rule

	mu   sync.Mutex // guards what follows
	from map[route]*arrivals
}

// route is where received tensors come from, and by what. To find its metrics by
// their labels took a tenth of the Go of a small receive.
type route struct {
	transport string
	peer      cluster.Task
}

// arrivals are the metrics of a route.
type arrivals struct {
	route
	count                   atomic.Int64 // of tensors
	tensors, bytes, retries prometheus.Counter
	seconds                 prometheus.Observer
}

// Buckets of transfer times: from a small tensor on a fast wire, 10 µs, in
// steps of 4 to a large one on a slow wire, 40 s.
const (
	firstBucket  = 10e-6
	bucketFactor = 4
	buckets      = 12
)

func newMetrics() *metrics {
	times := prometheus.ExponentialBuckets(firstBucket, bucketFactor, buckets)
	m := &metrics{
		from: make(map[route]*arrivals),
		received: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tryst_received_tensors_total", Help: "Tensors received, by transport and by the task that sent them.",
		}, []string{"transport", "peer"}),
		receivedBytes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tryst_received_bytes_total", Help: "Content of the tensors received, in bytes.",
		}, []string{"transport", "peer"}),
		retries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tryst_receive_retries_total", Help: "Attempts beyond the first that received tensors took, by the transport of the last one and by the task that sent them.",
		}, []string{"transport", "peer"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "tryst_receive_seconds", Help: "Time from the start of a transfer to its end, by transport and by the task that sent it.", Buckets: times,
		}, []string{"transport", "peer"}),
		sent: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tryst_sent_tensors_total", Help: "Receives of peers that were answered over gRPC with a tensor, by the task that asked.",
		}, []string{"peer"}),
		sentBytes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tryst_sent_bytes_total", Help: "Content of the tensors that peers were answered with over gRPC, in bytes, by the task that asked.",
		}, []string{"peer"}),
		sendErrors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tryst_send_errors_total", Help: "Receives of peers that were answered with an error, by its code.",
		}, []string{"code"}),
		rpcs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tryst_rpcs_total", Help: "gRPC calls served, by method and code.",
		}, []string{"method", "code"}),
		rpcSeconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "tryst_rpc_seconds", Help: "Time that gRPC calls took here; for RecvTensor this includes the wait for the value.", Buckets: times,
		}, []string{"method"}),
	}
	m.all = []prometheus.Collector{m.received, m.receivedBytes, m.retries, m.seconds, m.sent, m.sentBytes, m.sendErrors, m.rpcs, m.rpcSeconds}
	return m
}

// gauge adds a value that is read when metrics are collected.
func (m *metrics) gauge(name, help string, read func() float64) {
	m.all = append(m.all, prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, read))
}

// register adds all metrics to a registry. On an error none stays.
func (m *metrics) register(r prometheus.Registerer) error {
	for i, c := range m.all {
		if err := r.Register(c); err != nil {
			for _, added := range m.all[:i] {
				r.Unregister(added)
			}
			return status.Errorf(status.AlreadyExists, "metrics: %w", err)
		}
	}
	m.registered = true
	return nil
}

func (m *metrics) unregister(r prometheus.Registerer) {
	if !m.registered {
		return // what is like them there is another's
	}
	for _, c := range m.all {
		r.Unregister(c)
	}
}

// observe takes a finished receive; it is the observer of the transfer log.
func (m *metrics) observe(t transport.Transfer) {
	a := m.arrivals(route{t.Transport, t.Source.Task})
	a.count.Add(1)
	a.tensors.Inc()
	a.bytes.Add(float64(t.Bytes))
	a.seconds.Observe(t.End.Sub(t.Start).Seconds())
	if t.Attempt > 1 {
		a.retries.Add(float64(t.Attempt - 1))
	}
}

// arrivals finds or makes the metrics of a route.
func (m *metrics) arrivals(r route) *arrivals {
	if a := m.last.Load(); a != nil && a.route == r {
		return a
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	a := m.from[r]
	if a == nil {
		labels := []string{r.transport, r.peer.String()}
		a = &arrivals{
			route:   r,
			tensors: m.received.WithLabelValues(labels...), bytes: m.receivedBytes.WithLabelValues(labels...),
			retries: m.retries.WithLabelValues(labels...), seconds: m.seconds.WithLabelValues(labels...),
		}
		m.from[r] = a
	}
	m.last.Store(a)
	return a
}

// byTransport counts the tensors received by the transport that brought them.
func (m *metrics) byTransport() map[string]int {
	m.mu.Lock()
	defer m.mu.Unlock()
	counts := make(map[string]int)
	for r, a := range m.from {
		counts[r.transport] += int(a.count.Load())
	}
	return counts
}

// counted is a Worker whose answers to RecvTensor are counted.
type counted struct {
	transport.Worker
	m    *metrics
	spec *cluster.Spec
}

func (w counted) RecvTensor(ctx context.Context, req *tfpb.RecvTensorRequest) (*transport.TensorResponse, error) {
	r, err := w.Worker.RecvTensor(ctx, req)
	if err != nil {
		w.m.sendErrors.WithLabelValues(status.CodeOf(err).String()).Inc()
		return nil, err
	}
	peer := w.peer(req.GetRendezvousKey())
	w.m.sent.WithLabelValues(peer).Inc()
	w.m.sentBytes.WithLabelValues(peer).Add(float64(r.Tensor.Size()))
	return r, nil
}

// peer is the label of who asks for a key: its receiver, when the cluster has it.
func (w counted) peer(key string) string {
	k, err := rendezvous.ParseKey(key)
	if err != nil {
		return otherPeers
	}
	if _, ok := w.spec.Address(k.Dst().Task); !ok {
		return otherPeers
	}
	return k.Dst().Task.String()
}

func (m *metrics) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	start := time.Now()
	resp, err := handler(ctx, req)
	m.served(info.FullMethod, start, err)
	return resp, err
}

func (m *metrics) stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	start := time.Now()
	err := handler(srv, ss)
	m.served(info.FullMethod, start, err)
	return err
}

func (m *metrics) served(method string, start time.Time, err error) {
	m.rpcs.WithLabelValues(method, grpcstatus.Code(err).String()).Inc()
	m.rpcSeconds.WithLabelValues(method).Observe(time.Since(start).Seconds())
}
