package server

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	grpcstatus "google.golang.org/grpc/status"

	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/transport"
)

// metrics counts what a process moves. Peers are labels only where their number
// is bounded: the tasks that this process asks, not those that ask it.
type metrics struct {
	received, receivedBytes *prometheus.CounterVec
	seconds                 *prometheus.HistogramVec
	sent, sentBytes         prometheus.Counter
	sendErrors              *prometheus.CounterVec
	rpcs                    *prometheus.CounterVec
	rpcSeconds              *prometheus.HistogramVec

	all []prometheus.Collector
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
		received: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tryst_received_tensors_total", Help: "Tensors received, by transport and by the task that sent them.",
		}, []string{"transport", "peer"}),
		receivedBytes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tryst_received_bytes_total", Help: "Content of the tensors received, in bytes.",
		}, []string{"transport", "peer"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "tryst_receive_seconds", Help: "Time from the start of a transfer to its end.", Buckets: times,
		}, []string{"transport"}),
		sent: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tryst_sent_tensors_total", Help: "Receives of peers that were answered with a tensor.",
		}),
		sentBytes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tryst_sent_bytes_total", Help: "Content of the tensors that peers were answered with, in bytes.",
		}),
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
	m.all = []prometheus.Collector{m.received, m.receivedBytes, m.seconds, m.sent, m.sentBytes, m.sendErrors, m.rpcs, m.rpcSeconds}
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
	return nil
}

func (m *metrics) unregister(r prometheus.Registerer) {
	for _, c := range m.all {
		r.Unregister(c)
	}
}

// observe takes a finished receive; it is the observer of the transfer log.
func (m *metrics) observe(t transport.Transfer) {
	peer := t.Source.Task.String()
	m.received.WithLabelValues(t.Transport, peer).Inc()
	m.receivedBytes.WithLabelValues(t.Transport, peer).Add(float64(t.Bytes))
	m.seconds.WithLabelValues(t.Transport).Observe(t.End.Sub(t.Start).Seconds())
}

// counted is a Worker whose answers to RecvTensor are counted.
type counted struct {
	transport.Worker
	m *metrics
}

func (w counted) RecvTensor(ctx context.Context, req *tfpb.RecvTensorRequest) (*transport.TensorResponse, error) {
	r, err := w.Worker.RecvTensor(ctx, req)
	if err != nil {
		w.m.sendErrors.WithLabelValues(status.CodeOf(err).String()).Inc()
		return nil, err
	}
	w.m.sent.Inc()
	w.m.sentBytes.Add(float64(r.Tensor.Size()))
	return r, nil
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
