package worker

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/tensorproto"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

// derivedText begins the text of a derived error, as TensorFlow marked it before it had payloads.
const derivedText = "[_Derived_]"

// RunGraph runs one step of a graph, or a part of it. With store_errors_in_response_body its error
// is in the response, where its text is not cut.
//
// The body has no space for payloads. A derived error there would count as the cause, and the master
// would report it in place of the real one. So it ends the call, where it has both marks: the
// payload and the text of earlier releases.
func (w *Worker) RunGraph(ctx context.Context, req *tfpb.RunGraphRequest) (*tfpb.RunGraphResponse, error) {
	if w.sessions == nil {
		return nil, refuse("RunGraph")
	}
	resp := new(tfpb.RunGraphResponse)
	var err error
	if req.GetIsPartial() {
		err = w.runPartial(ctx, req, resp)
	} else {
		err = w.runStep(ctx, req, resp)
	}
	switch {
	case err == nil:
		return resp, nil
	case status.IsDerived(err):
		return nil, markDerived(err)
	case !req.GetStoreErrorsInResponseBody():
		return nil, err
	}
	e := status.From(err)
	resp.Recv = nil
	resp.StatusCode, resp.StatusErrorMessage = tfpb.Code(e.Code()), e.Message() //nolint:gosec // a code of gRPC
	return resp, nil
}

// markDerived returns a derived error with both marks.
func markDerived(err error) error {
	e := status.From(err)
	if strings.HasPrefix(e.Message(), derivedText) {
		return e
	}
	marked := status.New(e.Code(), derivedText+e.Message())
	for key, value := range e.Payloads() {
		marked = marked.WithPayload(key, value)
	}
	return marked
}

// runStep runs a whole step.
func (w *Worker) runStep(ctx context.Context, req *tfpb.RunGraphRequest, resp *tfpb.RunGraphResponse) error {
	if err := w.recentRuns.track(req.GetRequestId(), runText{req}); err != nil {
		return err
	}
	s, err := w.sessions.find(req.GetCreateWorkerSessionCalled(), req.GetSessionHandle())
	if err != nil {
		return err
	}
	defer s.release()
	r, err := w.newRun(s, req)
	if err != nil {
		return err
	}
	defer r.in.release()
	defer s.endRun(r.graph)
	if err := s.beginStep(); err != nil {
		return err
	}
	defer s.endStep()

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.ctx, func() { cancel(context.Cause(s.ctx)) })()
	if err := r.join(); err != nil {
		return err
	}
	defer r.rest()
	// As in TensorFlow, a master that cancels ends the kernels at once and the step a second later:
	// until then the error that made it cancel can reach the other workers. The step is owned by now,
	// so that one whose master was gone before is cleaned up too.
	defer context.AfterFunc(ctx, func() { w.cancelled(r.step) })()
	if err := rendezvous.SendTensors(r.r, r.in.keys, r.in.tensors); err != nil {
		return err
	}
	report := r.record(req.GetExecOpts())
	err = r.execute(ctx)
	if held := report(ctx, resp); err == nil {
		err = held
	}
	if err != nil {
		return err
	}
	return r.fetch(ctx, resp)
}

// cancelled ends a step whose master has cancelled it, or is gone.
func (w *Worker) cancelled(step int64) {
	w.opts.Manager.AbortStepLater(step)
	w.sessions.abandon(step)
}

// runText describes a RunGraph without the values that it feeds.
type runText struct{ *tfpb.RunGraphRequest }

func (r runText) String() string {
	return fmt.Sprintf("session_handle: %q graph_handle: %q step_id: %d request_id: %d",
		r.GetSessionHandle(), r.GetGraphHandle(), r.GetStepId(), r.GetRequestId())
}

// run is one step of a graph that this worker runs.
type run struct {
	w       *Worker
	session *session
	graph   *registered
	step    int64
	in      feeds
	out     outputs
	r       *rendezvous.BaseRemote // set by join
	owned   *ownedStep             // set by join
	observe observer               // nil when nobody wants to know
}

// newRun checks a request. The caller releases the feeds, and ends the run of the graph.
func (w *Worker) newRun(s *session, req *tfpb.RunGraphRequest) (*run, error) {
	r := &run{w: w, session: s, step: req.GetStepId()}
	err := checkStep("RunGraph", r.step)
	if err != nil {
		return nil, err
	}
	if r.out, err = outputsOf(req.GetRecvKey()); err != nil {
		return nil, err
	}
	if r.in, err = w.feeds(req.GetSend()); err != nil {
		return nil, err
	}
	if r.graph, err = s.graph(req.GetGraphHandle()); err != nil {
		r.in.release()
		return nil, err
	}
	return r, nil
}

// join begins the step in the rendezvous with the session, which owns it until its cleanup.
func (r *run) join() (err error) {
	if r.r, err = r.w.opts.Manager.Begin(r.step, r.session.place, r.session.remoter()); err == nil {
		r.owned = r.w.sessions.own(r.step, r.session)
	}
	return err
}

// rest ends the run that join began.
func (r *run) rest() { r.w.sessions.rest(r.step, r.owned) }

// execute runs the parts of the graph. The first error ends the others and the receives of the
// step; the result is the error that caused them. The end of outer ends the kernels alone: the
// master knows why, and the step is cleaned up or aborted later.
func (r *run) execute(outer context.Context) error {
	began := time.Now()
	ctx, cancel := context.WithCancel(outer)
	defer cancel()
	var (
		mu     sync.Mutex // guards failed
		failed status.Group
	)
	one := func(p part) {
		err := p.executor.Run(ctx, r.stepOf(p))
		if err == nil {
			return
		}
		mu.Lock()
		failed.Add(err)
		mu.Unlock()
		if outer.Err() == nil {
			// Peers get the text of the root error, marked as derived: this worker reports it.
			r.r.Abort(status.From(err).Derived())
			r.w.abortCollectives(r.step, err)
		}
		cancel()
	}
	if parts := r.graph.parts; len(parts) > 0 {
		var others sync.WaitGroup
		for _, p := range parts[1:] {
			others.Go(func() { one(p) })
		}
		one(parts[0])
		others.Wait()
	}
	r.w.ran(began)
	if err := failed.Err(); err != nil {
		return r.cause(ctx, err)
	}
	return nil
}

// stepOf returns the step for a part. Nodes in function bodies have no device: they are observed on
// that of the part.
func (r *run) stepOf(p part) *graph.Step {
	step := &graph.Step{ID: r.step, Rendezvous: r.r, Allocator: r.w.opts.Allocator, Workers: r.w.workers, Collectives: r.w.collectives()}
	if r.observe != nil {
		step.Observe = func(n graph.NodeRun) { r.observe(p.device, n) }
	}
	if show := r.w.opts.Print; show != nil {
		step.Print = func(n *graph.Node, stream, text string) { show(r.step, n.Name, stream, text) }
	}
	return step
}

// cause returns why the session or the worker has ended, if that ended the step, and err otherwise.
func (r *run) cause(ctx context.Context, err *status.Error) error {
	why, ours := context.Cause(r.session.ctx).(*status.Error) //nolint:errorlint // set by finish
	if ours && ctx.Err() != nil && (err.Code() == status.Cancelled || status.IsDerived(err)) {
		return why
	}
	return err
}

// fetch adds the values of the outputs to the response.
func (r *run) fetch(ctx context.Context, resp *tfpb.RunGraphResponse) error {
	if err := r.out.receive(ctx, r.r, r.w, resp); err != nil {
		code := status.Internal // TensorFlow's
		if status.CodeOf(err) == status.ResourceExhausted {
			code = status.ResourceExhausted
		}
		return status.Errorf(code, "Failed to fetch outputs for step %d. (Original error message: %w)", r.step, err)
	}
	return nil
}

// feeds are values that a request puts into the rendezvous of its step.
type feeds struct {
	keys    []rendezvous.Key
	tensors []*tensor.Tensor
}

func (f feeds) release() {
	for _, t := range f.tensors {
		t.Release()
	}
}

// feeds parses the values of a request. The caller releases them.
func (w *Worker) feeds(send []*tfpb.NamedTensorProto) (feeds, error) {
	var f feeds
	for _, named := range send {
		key, err := rendezvous.ParseKey(named.GetName())
		if err != nil {
			f.release()
			return feeds{}, err
		}
		t, err := tensorproto.FromProto(named.GetTensor(), w.opts.Allocator)
		if err != nil {
			f.release()
			return feeds{}, status.From(err).WithPrefix("the value for " + key.Describe())
		}
		f.keys, f.tensors = append(f.keys, key), append(f.tensors, t)
	}
	return f, nil
}

// outputs are values that a request takes from the rendezvous of its step.
type outputs struct {
	names []string // as in the request
	keys  []rendezvous.Key
}

// outputsOf parses the keys of a request; each counts once, as in TensorFlow.
func outputsOf(names []string) (o outputs, err error) {
	seen := make(map[string]bool, len(names)) // a stranger may name a million
	for _, name := range names {
		if seen[name] {
			continue
		}
		seen[name] = true
		key, err := rendezvous.ParseKey(name)
		if err != nil {
			return outputs{}, err
		}
		o.names, o.keys = append(o.names, name), append(o.keys, key)
	}
	return o, nil
}

// receive receives the values into a response. It reserves memory for both copies of each: in the response, and
// encoded.
func (o outputs) receive(ctx context.Context, r rendezvous.Rendezvous, w *Worker, resp *tfpb.RunGraphResponse) error {
	if len(o.keys) == 0 {
		return nil
	}
	values, err := rendezvous.RecvOutputs(ctx, r, o.keys)
	if err != nil {
		return err
	}
	defer func() {
		for _, v := range values {
			v.Tensor.Release()
		}
	}()
	for i, v := range values {
		if v.Dead {
			return invalid("The tensor returned for %s was not valid.", o.names[i])
		}
		size, err := tensorproto.Size(v.Tensor)
		if err != nil {
			return err
		}
		if err := w.hold(ctx, 2*int64(size)); err != nil {
			return err
		}
		p, err := tensorproto.ToProto(v.Tensor)
		if err != nil {
			return err
		}
		resp.Recv = append(resp.Recv, &tfpb.NamedTensorProto{Name: o.names[i], Tensor: p})
	}
	return nil
}
