package server

import (
	"context"
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
	received        *receiveMetrics
	sent, sentBytes *prometheus.CounterVec
	sendErrors      *prometheus.CounterVec
	rpcs            *prometheus.CounterVec
	rpcSeconds      *prometheus.HistogramVec

	all        []prometheus.Collector
	registered bool // all of them
}

func newMetrics() *metrics {
	m := &metrics{
		received: newReceiveMetrics(),
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
			Name: "tryst_rpc_seconds", Help: "Time that gRPC calls took here; for RecvTensor this includes the wait for the value.",
			Buckets: prometheus.ExponentialBuckets(firstBucket.Seconds(), bucketFactor, timeBuckets),
		}, []string{"method"}),
	}
	m.all = append(m.received.collectors(), m.sent, m.sentBytes, m.sendErrors, m.rpcs, m.rpcSeconds)
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

// counted is a Worker whose answers to RecvTensor are counted.
type countingWorker struct {
	transport.Worker
	m    *metrics
	spec *cluster.Spec
}

func (w countingWorker) RecvTensor(ctx context.Context, req *tfpb.RecvTensorRequest) (*transport.TensorResponse, error) {
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
func (w countingWorker) peer(key string) string {
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
