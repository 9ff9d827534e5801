package worker

import (
	"context"

	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
)

// partialRun is a step whose feeds and fetches come in several requests. The first request starts
// the executors; each one waits for its own outputs, and the last one for the executors too.
type partialRun struct {
	run *run // of the first request; its in and out are not used

	ctx    context.Context // of the executors
	cancel context.CancelCauseFunc

	executed chan struct{} // closed when the executors have ended
	err      error         // of the executors; set before executed is closed
}

// runPartial runs one request of a partial run.
func (w *Worker) runPartial(ctx context.Context, req *tfpb.RunGraphRequest, resp *tfpb.RunGraphResponse) error {
	if err := w.recentPartials.track(req.GetRequestId(), runText{req}); err != nil {
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
	call := ctx
	ctx, cancel := context.WithCancelCause(call)
	defer cancel(nil)
	defer context.AfterFunc(s.ctx, func() { cancel(context.Cause(s.ctx)) })()
	p, begins, err := s.findPartial(r)
	if !begins {
		s.endRun(r.graph) // a run that begins is ended by its executors
	}
	if err != nil {
		return err
	}
	// The master cancels the step, not only this request.
	defer context.AfterFunc(call, func() {
		p.cancel(nil)
		w.cancelled(r.step)
	})()
	if begins {
		err = p.start(r.in)
	} else {
		err = p.feed(r.in)
	}
	if err == nil {
		err = r.out.receive(ctx, p.run.r, w, resp)
	}
	if req.GetIsLastPartialRun() {
		err = p.last(err)
		s.endPartial(r.step, p)
	}
	if err != nil {
		return r.cause(ctx, status.From(err))
	}
	return nil
}

// findPartial returns the partial run of a step, and makes it when there is none.
func (s *session) findPartial(r *run) (p *partialRun, begins bool, err error) {
	s.mu.Lock()
	p = s.partial[r.step]
	s.mu.Unlock()
	if p != nil {
		return p, false, nil
	}
	if err := s.beginStep(); err != nil {
		return nil, false, err
	}
	if err := r.join(); err != nil {
		s.endStep()
		return nil, false, err
	}
	p = &partialRun{run: r, executed: make(chan struct{})}
	p.ctx, p.cancel = context.WithCancelCause(s.ctx)
	s.mu.Lock()
	first := s.partial[r.step]
	if first == nil {
		s.partial[r.step] = p
		s.users++ // until the executors have ended
		s.mu.Unlock()
		return p, true, nil
	}
	s.steps-- // another request was faster
	s.mu.Unlock()
	p.cancel(nil)
	r.rest() // without the lock of the session
	return first, false, nil
}

// endPartial forgets a partial run, whose executors have ended or are cancelled.
func (s *session) endPartial(step int64, p *partialRun) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.partial[step] == p {
		delete(s.partial, step)
		s.steps--
	}
}

// start feeds the step and starts its executors on a goroutine of the session.
func (p *partialRun) start(in feeds) error {
	err := p.feed(in)
	if err != nil {
		p.cancel(nil)
		p.run.r.Abort(err)
	}
	p.run.observe = p.run.observer(nil, nil)
	go func() {
		defer p.run.session.release()
		defer p.run.rest()
		defer p.run.session.endRun(p.run.graph)
		defer p.cancel(nil)
		p.err = p.run.execute(p.ctx)
		close(p.executed)
	}()
	return err
}

func (p *partialRun) feed(in feeds) error {
	return rendezvous.SendTensors(p.run.r, in.keys, in.tensors)
}

// last returns the outcome of the whole run, for its last request, whose own error is err. The
// error of the executors comes first: that of a fetch follows from it.
func (p *partialRun) last(err error) error {
	if err != nil {
		p.cancel(nil) // what was not fetched may be what the executors wait for
	}
	<-p.executed
	if p.err != nil && (err == nil || !isCancelled(p.err)) {
		return p.err
	}
	return err
}

// isCancelled reports whether an error is only the end of a context.
func isCancelled(err error) bool { return status.CodeOf(err) == status.Cancelled }
