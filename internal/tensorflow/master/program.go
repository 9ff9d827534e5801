package master

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"

	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/tensorproto"
	"github.com/tryst-rdma/tryst/transport"
)

// Program is a graph that a worker has registered. It is safe for concurrent use.
type Program struct {
	session        *Session
	handle         string
	feeds, fetches map[string]string
}

// Register registers a graph at the worker, for any number of runs. The graph must not be changed
// afterwards.
func (s *Session) Register(ctx context.Context, g *Graph) (*Program, error) {
	if g.err != nil {
		return nil, g.err
	}
	r, err := s.worker.RegisterGraph(ctx, &tfpb.RegisterGraphRequest{
		SessionHandle: s.handle, CreateWorkerSessionCalled: true, GraphDef: g.def, GraphOptions: &tfpb.GraphOptions{},
	})
	if err != nil {
		return nil, err
	}
	return &Program{s, r.GetGraphHandle(), g.feeds, g.fetches}, nil
}

// Close removes the graph from the worker, when no run of it is under way.
func (p *Program) Close(ctx context.Context) error {
	_, err := p.session.worker.DeregisterGraph(ctx, &tfpb.DeregisterGraphRequest{
		SessionHandle: p.session.handle, CreateWorkerSessionCalled: true, GraphHandle: p.handle,
	})
	return err
}

// NewStep returns an id for a step, as TensorFlow's master chooses it: at random, so that the steps
// of several masters of a worker differ.
func NewStep() int64 { return rand.Int64()&(1<<56-1) | 1<<56 }

// Step runs the graph once in a step of its own, and cleans up after it. It is Run for programs
// without edges to other tasks.
func (p *Program) Step(ctx context.Context, feeds map[string]*tensor.Tensor) (map[string]*tensor.Tensor, error) {
	step := NewStep()
	// An error of CleanUp does not take the fetches away: if the worker is gone, the next call fails.
	defer func() { _ = p.session.CleanUp(context.WithoutCancel(ctx), step) }()
	return p.Run(ctx, step, feeds)
}

// Run runs the graph once as part of a step, which may have parts at other tasks too, and returns
// when it has ended: with the fetches by name, whose references belong to the caller, or with the
// error of the first node that failed. A dead fetch is InvalidArgument.
//
// feeds must have a value for each Feed of the graph. The worker keeps what other tasks have not
// received until CleanUp. When ctx ends, the worker cancels the run.
func (p *Program) Run(ctx context.Context, step int64, feeds map[string]*tensor.Tensor) (map[string]*tensor.Tensor, error) {
	request := &tfpb.RunGraphRequest{
		SessionHandle: p.session.handle, CreateWorkerSessionCalled: true, GraphHandle: p.handle, StepId: step,
		RequestId: transport.NewRequestID(), ExecOpts: &tfpb.ExecutorOpts{},
	}
	for _, name := range slices.Sorted(maps.Keys(feeds)) {
		if _, ok := p.feeds[name]; !ok {
			return nil, status.Errorf(status.InvalidArgument, "master: RunGraph: the graph has no feed %q; it has %q", name, slices.Sorted(maps.Keys(p.feeds)))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.feeds)) {
		x := feeds[name]
		if x == nil {
			return nil, status.Errorf(status.InvalidArgument, "master: RunGraph: feed %q has no value; give one for each Feed of the graph", name)
		}
		t, err := tensorproto.ToProto(x)
		if err != nil {
			return nil, status.From(err).WithPrefix("master: RunGraph: feed " + name + ": ")
		}
		request.Send = append(request.Send, &tfpb.NamedTensorProto{Name: p.feeds[name], Tensor: t})
	}
	names := map[string]string{}
	for name, key := range p.fetches {
		names[key] = name
	}
	request.RecvKey = slices.Sorted(maps.Keys(names))
	r, err := p.session.worker.RunGraph(ctx, request)
	if err != nil {
		return nil, err
	}
	return fetched(r, names)
}

// fetched returns the fetches of a response.
func fetched(r *tfpb.RunGraphResponse, names map[string]string) (values map[string]*tensor.Tensor, err error) {
	values = map[string]*tensor.Tensor{}
	defer func() {
		if err != nil {
			for _, x := range values {
				x.Release()
			}
			values = nil
		}
	}()
	for _, v := range r.GetRecv() {
		name, ok := names[v.GetName()]
		if !ok || values[name] != nil {
			return values, status.Errorf(status.Internal, "master: RunGraph: the worker returned a value for the key %q, which was not asked for", v.GetName())
		}
		if values[name], err = tensorproto.FromProto(v.GetTensor(), tensor.Heap{}); err != nil {
			delete(values, name)
			return values, status.From(err).WithPrefix("master: RunGraph: fetch " + name + ": ")
		}
	}
	for _, name := range names {
		if values[name] == nil {
			return values, status.Errorf(status.Internal, "master: RunGraph: the worker returned no value for the fetch %q", name)
		}
	}
	return values, nil
}

// CleanUp ends a step at the worker: what it has sent and nobody received is dropped, and receives
// that still wait end with Aborted.
func (s *Session) CleanUp(ctx context.Context, step int64) error {
	_, err := s.worker.CleanupGraph(ctx, &tfpb.CleanupGraphRequest{StepId: step})
	return err
}
