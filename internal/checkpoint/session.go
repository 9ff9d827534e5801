package checkpoint

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	trystpb "github.com/tryst-rdma/tryst/internal/proto/tryst"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/transport"
)

// A pull is a sequence of sessions. A session is a step that the server opened, with the keys of
// the tensors that have not come yet, and the stream that keeps the step open. When the stream
// or a receive fails with an error that may pass, the pull opens the next session:
//
//	Open ─► keys ─► receives, within the windows ─► all have come
//	 ▲                    │
//	 └──── outage ────────┘ the stream or a receive failed

// part is what one receive brings: a tensor, or a piece of one.
type part struct {
	i int // index in Manifest.Entries
	piece
	key rendezvous.Key
	way *way // how the tensor is made from another one; nil for one that is received
}

// sink is where the parts of a pull go. One goroutine at a time calls its methods for one tensor,
// except into and take.
type sink interface {
	// missing returns the tensors that have not come whole, ascending.
	missing() []int
	// has reports whether a part has come already.
	has(p part) bool
	// weight returns how much of the window of bytes a part takes; 0 if its tensor has a share.
	weight(p part) int64
	// begin prepares for a part that is about to be requested. It takes over its weight.
	begin(p part)
	// into returns the memory to receive a part into; nil for any.
	into(ctx context.Context, p part) (*rendezvous.Into, error)
	// patch makes a whole tensor from its base, by deltas. It takes over the weight of the part. If it reports false, the tensor
	// must be requested.
	patch(ctx context.Context, p part, deltas []*tensor.Tensor) (ok bool, err error)
	// take takes over a part that has come, with a reference to its tensor. A whole tensor has
	// been checked. It reports whether all parts of the tensor must be requested again, since
	// it was damaged.
	take(p part, t *tensor.Tensor) (again bool, err error)
	// lost returns how much of the window a part whose receive has failed gives back.
	lost(p part) int64
}

// fetch receives all tensors that are missing in the sink. It returns the error that ends the
// pull, when all goroutines have ended.
func (pl *pull) fetch(caller context.Context, to sink) error {
	for {
		missing := to.missing()
		if len(missing) == 0 {
			return nil
		}
		err := pl.session(caller, missing, to)
		if err == nil {
			continue
		}
		err = pl.reported(caller, err)
		if err = pl.interrupted(caller, pl.versionOf(caller, err)); err != nil {
			return err
		}
	}
}

// session requests the missing tensors in one session. It returns the first error.
func (pl *pull) session(caller context.Context, missing []int, to sink) error {
	whole, lost := context.WithCancelCause(caller)
	defer lost(nil)
	here, others := pl.unchanged(missing)
	parts, s := here, (*session)(nil)
	if len(others) > 0 { // otherwise the server has nothing to give
		var err error
		s, err = pl.p.open(wants(whole, pl.wantedBytes(others, to)), pl.manifest, others, "", pl.deltaTerms(), pl.patience(pl.manifest.comparing()), pl.req.Measurement, lost)
		if err != nil {
			return err
		}
		defer s.close()
		pl.goesOn()
		pl.allow(s.parts)
		parts = pl.plan(here, s, others)
	}
	r := &batch{pl: pl, session: s, to: to, receives: semaphore.NewWeighted(int64(pl.req.Inflight)), applies: semaphore.NewWeighted(int64(pl.req.Inflight))}
	r.group, r.ctx = errgroup.WithContext(whole)
	r.stall.patience = pl.patience(pl.manifest.comparing())
	r.stall.ended = func() { lost(pl.p.stalled(r.stall.patience)) }
	defer r.stall.close()
	r.request(parts)
	err := r.group.Wait()
	pl.window.Release(r.lost.Load())
	if err == nil && whole.Err() != nil && len(to.missing()) > 0 {
		err = context.Cause(whole)
	}
	if err != nil {
		pl.brokeWith(s)
	}
	return err
}

// batch is the receives of a session.
type batch struct {
	pl      *pull
	session *session // nil if nothing is requested
	to      sink

	group    *errgroup.Group
	ctx      context.Context     // ends with the session, and with the first error
	receives *semaphore.Weighted // the window of receives
	applies  *semaphore.Weighted // the window of deltas that are applied, and of tensors that are copied
	stall    stall               // of the receives
	underWay atomic.Int64        // parts
	lost     atomic.Int64        // what failed parts give back to the window of bytes
}

// request requests parts, in order, within the windows. It returns when all are under way, or when
// the session has ended.
func (r *batch) request(parts []part) {
	for _, p := range parts {
		if r.to.has(p) {
			continue
		}
		weight := r.to.weight(p)
		if weight > 0 && r.pl.acquire(r.ctx, weight, &r.underWay) != nil { // only when ctx has ended
			return
		}
		if r.receives.Acquire(r.ctx, 1) != nil {
			r.pl.window.Release(weight)
			return
		}
		r.to.begin(p)
		r.underWay.Add(1)
		r.group.Go(func() error {
			defer r.underWay.Add(-1)
			return r.one(p)
		})
	}
}

// one receives a part. The pieces of a tensor that was damaged are requested again here: the sink may
// need it before it makes space for others.
func (r *batch) one(p part) error {
	if p.way != nil {
		ok, err := r.patch(p)
		if err == nil && !ok && r.session != nil {
			r.request(r.session.partsOf(p.i))
		}
		return err
	}
	t, err := r.receiveChecked(p)
	if err != nil {
		r.lost.Add(r.to.lost(p)) // no space for another part before the group has ended
		return err
	}
	again, err := r.to.take(p, t)
	if again {
		r.request(r.session.partsOf(p.i))
	}
	return err
}

// bytesOf returns the length of a part.
func (pl *pull) bytesOf(p part) int64 {
	if p.whole() {
		return pl.manifest.Entries[p.i].Bytes
	}
	return p.n
}

// allow takes note of the largest part that is requested.
func (pl *pull) allow(parts []part) {
	largest := int64(0)
	for _, p := range parts {
		largest = max(largest, pl.bytesOf(p))
	}
	pl.mu.Lock()
	defer pl.mu.Unlock()
	pl.outage.allow(largest)
}

// acquire waits for space in the window of bytes. When nothing is under way, only the consumer can
// make space, and the time until it does is no outage.
func (pl *pull) acquire(ctx context.Context, weight int64, underWay *atomic.Int64) error {
	if pl.window.TryAcquire(weight) {
		return nil
	}
	if underWay.Load() == 0 {
		defer pl.progressed()
	}
	return pl.window.Acquire(ctx, weight)
}

// receiveChecked receives a part. It checks a whole tensor, and requests it once more if it is
// damaged: the damage may have happened on the way. It leaves the window of receives when the part
// has come.
func (r *batch) receiveChecked(p part) (*tensor.Tensor, error) {
	t, err := r.receive(p)
	r.receives.Release(1)
	if err != nil {
		return nil, err
	}
	if err = r.pl.check(p, t); err == nil {
		return t, nil
	}
	t.Release()
	if t, err = r.receive(p); err != nil {
		return nil, err
	}
	if err = r.pl.check(p, t); err != nil {
		t.Release()
		return nil, err
	}
	return t, nil
}

// check checks a part as far as it can be checked alone.
func (pl *pull) check(p part, t *tensor.Tensor) error {
	e := &pl.manifest.Entries[p.i]
	var err error
	if p.whole() {
		err = e.check(t, pl.manifest.Algorithm, !pl.req.SkipDigests)
	} else if t.DType() != tensor.Uint8 || !t.Shape().Equal(tensor.Vector(int(p.n))) {
		err = status.Errorf(status.DataLoss, "%v was received as a piece of %d bytes", t, p.n)
	}
	if err != nil {
		return wrap("tensor "+quote(e.Name)+" from "+pl.p.server(), err)
	}
	return nil
}

// receive receives one part through the rendezvous.
func (r *batch) receive(p part) (*tensor.Tensor, error) {
	into, err := r.to.into(r.ctx, p)
	if err != nil {
		return nil, err
	}
	return r.transfer(p, p.key, r.pl.bytesOf(p), into)
}

// transfer receives n bytes with a key, for a part, into memory if that is not nil.
func (r *batch) transfer(p part, key rendezvous.Key, n int64, into *rendezvous.Into) (*tensor.Tensor, error) {
	type outcome struct {
		v   rendezvous.Value
		err error
	}
	var args rendezvous.Args
	if into != nil {
		args = into.Args()
	}
	pl, s := r.pl, r.session
	c := make(chan outcome, 1)
	pl.transferring(1)
	r.stall.begin(n)
	s.receiver.RecvAsync(r.ctx, s.step, key, args, func(v rendezvous.Value, _ rendezvous.Args, err error) {
		c <- outcome{v, err}
	})
	o := <-c
	r.stall.end(n)
	pl.received(p.i, o.v, o.err)
	what := "receiving tensor " + quote(pl.manifest.Entries[p.i].Name) + " from " + pl.p.server()
	switch {
	case o.err != nil:
		return nil, s.cause(r.ctx, wrap(what, o.err))
	case o.v.Dead:
		o.v.Tensor.Release()
		return nil, status.Errorf(status.Internal, "%s: a dead value was received", what)
	}
	return o.v.Tensor, nil
}

// reported reports the tensor that a session's error says is damaged to the server, and adds to the error
// that its file has changed, if the server finds that. Other errors stay as they are.
func (pl *pull) reported(ctx context.Context, err error) error {
	e, m := status.From(err), pl.manifest
	name, ok := e.Payload(damagedKey)
	if !ok {
		return err
	}
	i := slices.IndexFunc(m.Entries, func(e TensorInfo) bool { return e.Name == string(name) })
	s, found := pl.p.open(wants(ctx, 0), m, []int{i}, string(name), nil, pl.patience(m.comparing()), pl.req.Measurement, func(error) {})
	switch {
	case found == nil:
		s.close() // the server has what it published, or does not know: the damage happened on the way
	case status.CodeOf(found) == status.FailedPrecondition:
		return status.Errorf(e.Code(), "%s; %s", e.Message(), status.From(found).Message())
	}
	return err
}

// versionOf explains the error of a session whose version the server does not have: it may have
// another one. During an outage, a server without the publication may be one that is starting.
func (pl *pull) versionOf(ctx context.Context, err error) error {
	m := pl.manifest
	if status.CodeOf(err) != status.NotFound || ctx.Err() != nil {
		return err
	}
	listing, cancel := context.WithTimeout(ctx, leastPatience)
	defer cancel()
	all, other := pl.p.List(listing)
	if other != nil && listing.Err() != nil && ctx.Err() == nil {
		return pl.p.silent(leastPatience)
	}
	for _, p := range all {
		if p.Name == m.Name && p.Version != m.Version {
			return changed(status.Errorf(status.FailedPrecondition, "publication %s changed during the pull, from version %s to version %s on %s; pull it again",
				quote(m.Name), quote(m.Version), quote(p.Version), pl.p.server()))
		}
	}
	if pl.inOutage() {
		return status.New(status.Unavailable, status.From(err).Message())
	}
	if other != nil && mayPass(other) {
		return other
	}
	return err
}

// session is a step that the server opened, and the stream that keeps it open.
type session struct {
	step  int64
	parts []part       // in the order of the manifest
	ways  map[int]*way // by tensor: how it may be made from another one

	receiver Receiver
	cancel   func()        // ends the stream
	ended    chan struct{} // closed when the stream has ended
}

// open gets a step with the keys of the given tensors from the server. Patience bounds the time until all keys
// have come. If damaged is not empty, it is the name of a tensor that the server shall compare with what it
// published. deltas says which deltas are taken; nil for none. A measurement is marked as such. When the stream
// ends before close, lost is called with the reason.
func (p *Puller) open(ctx context.Context, m *Manifest, chosen []int, damaged string, deltas *deltaTerms, patience time.Duration, measurement bool, lost func(error)) (*session, error) {
	what := "opening publication " + quote(m.Name)
	// The stream ends with ctx, but does not have its deadline: the server would end the
	// stream first, with a less precise error.
	streamCtx, end := context.WithCancel(context.WithoutCancel(ctx))
	unwatch := context.AfterFunc(ctx, end)
	cancel := func() {
		unwatch()
		end()
	}
	var late atomic.Bool
	timer := time.AfterFunc(patience, func() {
		late.Store(true)
		end()
	})
	defer timer.Stop()
	fail := func(err error, stream grpc.ServerStreamingClient[trystpb.OpenResponse]) error {
		cancel()
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case late.Load():
			return wrap(what, p.silent(patience))
		case stream == nil:
			return p.failed(ctx, what, err, nil)
		}
		return p.notOpened(ctx, what, err, stream.Trailer())
	}
	callCtx := streamCtx
	if measurement {
		callCtx = metadata.AppendToOutgoingContext(streamCtx, measurementKey, "1")
	}
	req := &trystpb.OpenRequest{
		Publication: m.Name, Version: m.Version, Tensors: m.namesOf(chosen),
		Puller: p.o.Task.String(), PullerIncarnation: p.o.Incarnation, PieceBytes: pieceBytes,
		Damaged: damaged, Notices: true,
	}
	if deltas != nil {
		req.Deltas = deltas.request
	}
	stream, err := p.client.Open(callCtx, req)
	if err != nil {
		return nil, fail(err, nil)
	}
	s := &session{receiver: p.o.Receiver, cancel: cancel, ended: make(chan struct{})}
	k := newKeys(m, chosen, deltas)
	for last := false; !last; {
		resp, err := stream.Recv()
		if err != nil {
			return nil, fail(err, stream)
		}
		if err := k.take(resp); err != nil {
			cancel()
			return nil, wrap(what, err)
		}
		last = resp.GetLast()
	}
	if !timer.Stop() { // the stream ends, although all keys have come
		cancel()
		return nil, wrap(what, p.silent(patience))
	}
	s.step, s.ways = k.step, k.ways
	if s.parts, err = k.parts(chosen); err != nil {
		cancel()
		return nil, wrap(what, err)
	}
	go func() {
		defer close(s.ended)
		defer cancel() // the stream of a version that is gone, which the server waits for
		lost(p.attend(streamCtx, m, s.step, stream))
	}()
	return s, nil
}

// attend answers the notices of a session, and returns why it has ended.
func (p *Puller) attend(ctx context.Context, m *Manifest, step int64, stream grpc.ServerStreamingClient[trystpb.OpenResponse]) error {
	what := "the pull of " + quote(m.Name) + " was interrupted"
	for {
		resp, err := stream.Recv()
		switch {
		case err != nil:
			return p.failed(ctx, what, err, stream.Trailer())
		case resp.GetGone() != nil:
			return p.goneError(m, resp.GetGone())
		case !resp.GetAlive():
			return status.Errorf(status.Internal, "opening publication %s: %s sent a message after the last one", quote(m.Name), p.server())
		}
		if _, err := p.client.Alive(ctx, &trystpb.AliveRequest{StepId: step}); err != nil {
			continue // the server ends the pull if it hears nothing, and then the stream says so
		}
	}
}

// goneError is the error of a session whose version is not at the server any more.
func (p *Puller) goneError(m *Manifest, g *trystpb.Gone) error {
	code := status.Code(g.GetCode())
	if code != status.NotFound && code != status.FailedPrecondition {
		code = status.FailedPrecondition // the server is not trusted
	}
	err := status.Errorf(code, "the pull of %s has ended: %w", quote(m.Name), &status.Said{Peer: p.server(), Text: status.Truncate(transport.PlainText(g.GetMessage()))})
	if g.GetNewer() {
		return changed(err)
	}
	return err
}

// partsOf returns the parts of a tensor.
func (s *session) partsOf(i int) []part {
	first, _ := slices.BinarySearchFunc(s.parts, i, func(p part, i int) int { return cmp.Compare(p.i, i) })
	end := first
	for end < len(s.parts) && s.parts[end].i == i {
		end++
	}
	return s.parts[first:end]
}

// cause returns the cause of a receive's error err: the cause of ctx if that has ended. An error
// may follow from the end of the stream, for instance when the server stops and ends the step.
// Then cause waits up to causeDelay for the stream's error.
func (s *session) cause(ctx context.Context, err *status.Error) error {
	if status.IsDerived(err) || err.Code() == status.Aborted {
		timer := time.NewTimer(causeDelay)
		defer timer.Stop()
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return s.inWords(err)
}

// inWords explains the error of a receive in a step that has ended in this process, although the session has not. Its
// text is TensorFlow's (rendezvous).
func (s *session) inWords(err *status.Error) *status.Error {
	id := strconv.FormatInt(s.step, 10)
	if what, ok := strings.CutSuffix(err.Message(), "Cleanup "+id); ok && err.Code() == status.Aborted {
		return err.WithMessage(what + "step " + id + " has ended: the server gave the id of a step that is over; it must draw a new one for each pull")
	}
	return err
}

// close ends the stream, and with it the step on both sides.
func (s *session) close() {
	s.cancel()
	<-s.ended
	s.receiver.EndStep(s.step)
}
