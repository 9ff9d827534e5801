package server

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/proto/tensorflowgrpc"
	"github.com/tryst-rdma/tryst/internal/proto/trystgrpc"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/server/internal/refusals"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/transport"
)

// metrics has the metrics of a process. A peer is a label only where the number of peers is
// bounded: the tasks that this process requests from, and the requesters that are in the
// cluster. All other requesters share the label otherPeers.
type metrics struct {
	received        *receiveMetrics
	sent, sentBytes *prometheus.CounterVec
	sentTensors     atomic.Int64 // the sum of sent; the value of a Counter cannot be read
	sendErrors      *prometheus.CounterVec
	rpcs            *prometheus.CounterVec
	rpcSeconds      *prometheus.HistogramVec
	kept            *keptMetric
	refusals        *refusals.Log
	active          func() // called for each call for tensors or graphs that was served, if not nil
	calling         func() // called for each call for tensors that begins, if not nil

	all        []prometheus.Collector
	registered bool // all are in the registry
}

func newMetrics(refused *refusals.Log) *metrics {
	m := &metrics{
		received: newReceiveMetrics(),
		kept:     newKeptMetric(),
		refusals: refused,
		sent: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tryst_sent_tensors_total", Help: "Tensors sent over gRPC, by requesting task.",
		}, []string{"peer"}),
		sentBytes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tryst_sent_bytes_total", Help: "Content of tensors sent over gRPC, in bytes, by requesting task.",
		}, []string{"peer"}),
		sendErrors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tryst_send_errors_total", Help: "Requests for tensors that ended with an error, by code.",
		}, []string{"code"}),
		rpcs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tryst_rpcs_total", Help: "gRPC calls served, by method and code.",
		}, []string{"method", "code"}),
		rpcSeconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "tryst_rpc_seconds", Help: "Duration of gRPC calls in the server, in seconds. RecvTensor includes the wait for the value.",
			Buckets: prometheus.ExponentialBuckets(firstBucket.Seconds(), bucketFactor, timeBuckets),
		}, []string{"method"}),
	}
	m.all = append(m.received.collectors(), m.sent, m.sentBytes, m.sendErrors, m.rpcs, m.rpcSeconds)
	m.all = append(m.all, refused.Collectors()...)
	return m
}

// gauge adds a gauge whose value is read when metrics are collected.
func (m *metrics) gauge(name, help string, read func() float64) {
	m.all = append(m.all, prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, read))
}

// register adds all metrics to a registry, or none if one of them fails.
func (m *metrics) register(r prometheus.Registerer) error {
	for i, c := range m.all {
		if err := r.Register(c); err != nil {
			for _, added := range m.all[:i] {
				r.Unregister(added)
			}
			return status.Errorf(status.AlreadyExists, "metrics: another server or client of this program has the same Registerer; give each its own, or one that adds a label (prometheus.WrapRegistererWith): %w", err)
		}
	}
	m.registered = true
	return nil
}

func (m *metrics) unregister(r prometheus.Registerer) {
	if !m.registered {
		return // another server of this program has registered these names
	}
	for _, c := range m.all {
		r.Unregister(c)
	}
}

// countingWorker is a Worker that counts the responses to RecvTensor.
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
	peer := w.peer(r.Requester.Name, req.GetRendezvousKey())
	w.m.sent.WithLabelValues(peer).Inc()
	w.m.sentTensors.Add(1)
	w.m.sentBytes.WithLabelValues(peer).Add(float64(r.Tensor.Size()))
	return r, nil
}

// peer returns the label of a receiver: its task if it is in the cluster. One that has sent no name
// has that which the key gives it.
func (w countingWorker) peer(name, key string) string {
	task, err := cluster.ParseTask(name)
	if name == "" {
		var k rendezvous.Key
		k, err = rendezvous.ParseKey(key)
		task = k.Dst().Task
	}
	if _, ok := w.spec.Address(task); err != nil || !ok {
		return otherPeers
	}
	return task.String()
}

func (m *metrics) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	start := time.Now()
	m.begins(info.FullMethod)
	resp, err := handler(ctx, req)
	m.served(ctx, info.FullMethod, start, err)
	return resp, err
}

func (m *metrics) stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	start := time.Now()
	m.begins(info.FullMethod)
	err := handler(srv, ss)
	m.served(ss.Context(), info.FullMethod, start, err)
	return err
}

// forTensors reports whether calls of a method carry or request tensors. Probes and lists, which may
// come at short intervals for ever, do not.
func forTensors(method string) bool {
	switch method {
	case tensorflowgrpc.WorkerService_RecvTensor_FullMethodName, trystgrpc.Chunks_Fetch_FullMethodName, trystgrpc.Publications_Open_FullMethodName:
		return true
	}
	return false
}

func (m *metrics) begins(method string) {
	if m.calling != nil && forTensors(method) {
		m.calling()
	}
}

func (m *metrics) served(ctx context.Context, method string, start time.Time, err error) {
	m.refusals.Call(ctx, method, err)
	m.rpcs.WithLabelValues(method, grpcstatus.Code(err).String()).Inc()
	m.rpcSeconds.WithLabelValues(method).Observe(time.Since(start).Seconds())
	if m.active != nil && (forTensors(method) || forGraphs(method)) {
		m.active()
	}
}

// forGraphs reports whether calls of a method make or free what graphs keep on the Go heap.
func forGraphs(method string) bool {
	switch method {
	case tensorflowgrpc.WorkerService_RegisterGraph_FullMethodName, tensorflowgrpc.WorkerService_RunGraph_FullMethodName,
		tensorflowgrpc.WorkerService_DeregisterGraph_FullMethodName, tensorflowgrpc.WorkerService_CleanupGraph_FullMethodName,
		tensorflowgrpc.WorkerService_CleanupAll_FullMethodName, tensorflowgrpc.WorkerService_DeleteWorkerSession_FullMethodName:
		return true
	}
	return false
}
