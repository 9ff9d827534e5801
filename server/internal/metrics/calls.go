package metrics

import (
	"context"
	"sync"
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
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/transport"
	grpctransport "github.com/tryst-rdma/tryst/transport/grpc"
)

// Calls has the metrics of the calls that a process serves.
type Calls struct {
	// Ended is called at the end of each call; Began for each call for tensors that begins, and Active for each call
	// for tensors or graphs that was served, if they are not nil. All three are set before the first call.
	Ended         func(ctx context.Context, method string, err error)
	Began, Active func()

	sent, sentBytes *prometheus.CounterVec
	sentTensors     atomic.Int64 // the sum of sent; the value of a Counter cannot be read
	sentTo          sync.Map     // *atomic.Int64 by peer: the same as sentBytes
	sendErrors      *prometheus.CounterVec
	rpcs            *prometheus.CounterVec
	rpcSeconds      *prometheus.HistogramVec
}

func newCalls() *Calls {
	return &Calls{
		Ended:     func(context.Context, string, error) {},
		sent:      sentOver(SentTensors, SentTensorsHelp),
		sentBytes: sentOver(SentBytes, SentBytesHelp),
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
}

// The metrics of what is sent. Each transport has its part of them, with its name as the label transport.
const (
	SentTensors     = "tryst_sent_tensors_total"
	SentTensorsHelp = "Tensors sent, by transport and requesting task."
	SentBytes       = "tryst_sent_bytes_total"
	SentBytesHelp   = "Content of sent tensors, in bytes, by transport and requesting task."
)

// sentOver returns the part of gRPC.
func sentOver(name, help string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: name, Help: help, ConstLabels: prometheus.Labels{"transport": grpctransport.Name},
	}, []string{"peer"})
}

func (m *Calls) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.sent, m.sentBytes, m.sendErrors, m.rpcs, m.rpcSeconds}
}

// Sent returns how many tensors were sent in responses.
func (m *Calls) Sent() int64 { return m.sentTensors.Load() }

// countSent counts bytes that were sent to a peer.
func (m *Calls) countSent(peer string, bytes int64) {
	n, ok := m.sentTo.Load(peer)
	if !ok {
		n, _ = m.sentTo.LoadOrStore(peer, new(atomic.Int64))
	}
	if n, ok := n.(*atomic.Int64); ok {
		n.Add(bytes)
	}
}

// EachSent calls f with the bytes that were sent to each peer over gRPC; OtherPeers stands for all that are not in the cluster.
func (m *Calls) EachSent(f func(peer string, bytes int64)) {
	m.sentTo.Range(func(peer, n any) bool {
		p, _ := peer.(string)
		if n, ok := n.(*atomic.Int64); ok {
			f(p, n.Load())
		}
		return true
	})
}

// Worker returns w with its responses to RecvTensor counted. spec returns the present cluster.
func (m *Calls) Worker(w transport.Worker, spec func() *cluster.Spec) transport.Worker {
	return countingWorker{w, m, spec}
}

// countingWorker is a Worker that counts the responses to RecvTensor.
type countingWorker struct {
	transport.Worker
	m    *Calls
	spec func() *cluster.Spec
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
	w.m.countSent(peer, r.Tensor.Size())
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
	if _, ok := w.spec().Address(task); err != nil || !ok {
		return OtherPeers
	}
	return task.String()
}

// Unary is the interceptor of unary calls.
func (m *Calls) Unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	start := time.Now()
	m.begins(info.FullMethod)
	resp, err := handler(ctx, req)
	m.served(ctx, info.FullMethod, start, err)
	return resp, err
}

// Stream is the interceptor of streams.
func (m *Calls) Stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
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

func (m *Calls) begins(method string) {
	if m.Began != nil && forTensors(method) {
		m.Began()
	}
}

func (m *Calls) served(ctx context.Context, method string, start time.Time, err error) {
	m.Ended(ctx, method, err)
	m.rpcs.WithLabelValues(method, grpcstatus.Code(err).String()).Inc()
	m.rpcSeconds.WithLabelValues(method).Observe(time.Since(start).Seconds())
	if m.Active != nil && (forTensors(method) || forGraphs(method)) {
		m.Active()
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
