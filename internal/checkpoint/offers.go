package checkpoint

import (
	"context"
	"time"

	"google.golang.org/grpc"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/delta"
	trystpb "github.com/tryst-rdma/tryst/internal/proto/tryst"
	"github.com/tryst-rdma/tryst/rendezvous"
)

// A puller that has a version is offered deltas, after the keys of the tensors: for each tensor that is there earlier by its
// deltas, at the rate and with the round trip that the puller has measured (choice.go). It takes what it wants. The offers wait for
// the deltas that are still being made, as long as all tensors are there earlier for it by their estimates.
//
// Any caller may open many pulls and read none. So each message of offers is decided when it is built, which is when it was
// charged, and between two messages nothing here refers to a delta.

// offerCursor makes the offers for the tensors of a pull, one message after the other.
type offerCursor struct {
	catalog     *Catalog
	publication *publication
	src, dst    string
	from        uint64    // number of the version that the puller has
	measured    pullRoute // by the puller
	entries     []*entry  // that are left; none for a puller that is offered nothing
}

// step is a delta, to the version with a number.
type step struct {
	delta.Delta
	to uint64
}

// wantsDeltas takes note that a puller takes deltas.
func (c *Catalog) wantsDeltas(p *publication, puller cluster.Task, req *trystpb.DeltaRequest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l := c.lines[p.manifest.Name]; l != nil && p.inMemory {
		l.deltas.takers.note(puller.String(), float64(req.GetRate()), l.deltas.entered)
	}
}

// measured takes note of the rate of a pull, as its server has seen it, for a puller that has not said any.
func (c *Catalog) measured(p *publication, pull *pullCount, took float64) {
	sent := pull.sent.Load()
	c.mu.Lock()
	defer c.mu.Unlock()
	if l := c.lines[p.manifest.Name]; l != nil && sent >= leastMeasured && took > 0 {
		l.deltas.takers.measured(pull.Puller.String(), float64(sent)/took)
	}
}

// offers returns the offers for a pull of p; none without a request for them, or if no deltas lead from the version that the
// puller has to p.
func (c *Catalog) offers(p *publication, entries []*entry, puller cluster.Task, req *trystpb.DeltaRequest) *offerCursor {
	o := &offerCursor{
		catalog: c, publication: p, src: c.o.Device.String(), dst: cluster.Device{Task: puller, Type: "CPU"}.String(),
		from: req.GetNumber(), measured: pullRoute{float64(req.GetRate()), time.Duration(min(req.GetRoundTrip(), uint64(tripMost)))},
	}
	if req == nil {
		return o
	}
	c.wantsDeltas(p, puller, req)
	if p.inMemory && !c.o.NoDeltas && req.GetNumber() != 0 && req.GetEpoch() == p.epoch {
		if _, _, ok := o.route(); ok {
			o.entries = entries
		}
	}
	return o
}

// any reports whether there may be offers.
func (o *offerCursor) any() bool { return len(o.entries) > 0 }

// route returns the deltas that lead to the version now, as deltas.path. The caller keeps them for no longer than it works.
func (o *offerCursor) route() (path []delta.Step, m *making, ok bool) {
	c, p := o.catalog, o.publication
	c.mu.RLock()
	defer c.mu.RUnlock()
	l := c.lines[p.manifest.Name]
	if l == nil || l.epoch != p.epoch {
		return nil, nil, false
	}
	return l.deltas.path(o.from, p)
}

// path returns the kept steps that lead from the version with a number towards p, and the making that leads from there to p, if
// that is the last step.
func (d *deltas) path(from uint64, p *publication) (path []delta.Step, m *making, ok bool) {
	to := p.number
	if d.fresh != nil && d.fresh.to == p {
		m, to = d.fresh, d.fresh.from.number
	}
	if from == to && m != nil {
		return nil, m, true
	}
	if d.chain == nil || from >= to {
		return nil, nil, false
	}
	path, ok = d.chain.Path(from, to)
	return path, m, ok
}

// wait waits for the deltas that are still being made, as far as they gain. It returns false if the pull, or its version, ends
// first.
func (o *offerCursor) wait(ctx context.Context) bool {
	path, m, ok := o.route()
	if !ok || m == nil {
		return ok
	}
	if !waitFor(ctx, o.publication, m.looked) {
		return false
	}
	if m.complete() {
		return true
	}
	n := o.measured.await(o.awaited(path, m))
	if n == 0 {
		return true
	}
	return waitFor(ctx, o.publication, m.byName[o.entries[n-1].info.Name].done)
}

// awaited returns what is known of the deltas of all entries, the last of which is being made. It must be looked.
func (o *offerCursor) awaited(path []delta.Step, m *making) []awaited {
	all := make([]awaited, len(o.entries))
	ready := m.ready()
	for i, e := range o.entries {
		a := &all[i]
		a.length = e.info.Bytes
		one := m.byName[e.info.Name]
		if one == nil {
			continue
		}
		a.ready = ready[one]
		if deltas, cost, ok := delta.Tensor(path, e.info.Name, false); ok && time.Now().Add(a.ready).Before(m.until) {
			n := len(deltas) + 1
			a.deltas = cost.Add(one.estimate.Apply(false)).Add(o.measured.receives(int64(n)))
			a.gains = o.faster(one.estimate, cost, n)
		}
	}
	return all
}

// complete reports whether nothing is being made any more.
func (m *making) complete() bool {
	if len(m.tensors) == 0 {
		return true
	}
	select {
	case <-m.tensors[len(m.tensors)-1].done: // the last one
		return true
	default:
		return false
	}
}

// wayTo returns the deltas of a tensor, if they are there before the whole. What is still being made is not there.
func (o *offerCursor) wayTo(path []delta.Step, m *making, name string) ([]step, bool) {
	deltas, cost, ok := delta.Tensor(path, name, false)
	if !ok {
		return nil, false
	}
	steps := make([]step, 0, len(deltas)+1)
	for i, d := range deltas {
		steps = append(steps, step{d, path[i].To})
	}
	if m == nil {
		whole := deltas[0].Summary.Whole()
		return steps, o.measured.gains(whole.Bytes, cost, len(deltas))
	}
	last := m.byName[name]
	if last == nil {
		return nil, false
	}
	o.catalog.mu.RLock()
	d := last.delta
	o.catalog.mu.RUnlock()
	if len(deltas) > 0 && deltas[0].Summary.Length != d.Summary.Length || !o.faster(d.Summary, cost, len(deltas)+1) {
		return nil, false
	}
	return append(steps, step{d, m.to.number}), true
}

// faster reports whether a tensor is there earlier by a delta, after others with a cost, than whole. They are n in all.
func (o *offerCursor) faster(d delta.Summary, before delta.Cost, n int) bool {
	return d.Method != delta.Whole && o.measured.gains(d.Length, before.Add(d.Apply(false)), n)
}

// waitFor waits for a channel to be closed. It returns false if the pull, or its version, ends first.
func waitFor(ctx context.Context, p *publication, closed <-chan struct{}) bool {
	select {
	case <-closed:
		return true // whatever else has ended
	default:
	}
	select {
	case <-closed:
		return true
	case <-ctx.Done():
	case <-p.gone:
	}
	return false
}

// send sends the offers, after the keys of all tensors, in messages of up to keysPerMessage.
func (o *offerCursor) send(id int64, stream grpc.ServerStreamingServer[trystpb.OpenResponse]) error {
	if !o.wait(stream.Context()) {
		o.entries = nil
	}
	for last := false; !last; {
		size := messageHead
		if o.any() {
			size = keysPerMessage
		}
		err := sendBuilt(stream, size, func() *trystpb.OpenResponse {
			resp := &trystpb.OpenResponse{StepId: id, Deltas: o.next(size - messageHead)}
			last = !o.any() || len(resp.GetDeltas()) == 0 // the deltas may have left meanwhile
			resp.Last = last
			return resp
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// next returns the offers of the next message, which may take so many bytes. Tensors without an offer are passed over,
// and those whose offer does not fit into any message.
func (o *offerCursor) next(room int) (deltas []*trystpb.TensorDelta) {
	path, m, ok := o.route()
	if !ok {
		o.entries = nil
	}
	for ; o.any(); o.entries = o.entries[1:] {
		e := o.entries[0]
		steps, ok := o.wayTo(path, m, e.info.Name)
		size := o.sizeOf(e, len(steps))
		if !ok || size > keysPerMessage-messageHead {
			continue
		}
		if size > room {
			break
		}
		room -= size
		deltas = append(deltas, o.message(e, steps))
	}
	return deltas
}

// sizeOf returns the most bytes that an offer of so many steps takes in a message.
func (o *offerCursor) sizeOf(e *entry, steps int) int {
	return keyHead + len(e.info.Name) + steps*(2*keyHead+len(o.src)+len(o.dst)+e.edgeLength+maxDeltaDigest)
}

func (o *offerCursor) message(e *entry, steps []step) *trystpb.TensorDelta {
	p := o.publication
	base, _ := steps[0].Digests()
	d := &trystpb.TensorDelta{Name: e.info.Name, Base: base}
	from := o.from
	for _, s := range steps {
		k := deltaKey{publication: p.manifest.Name, tensor: d.Name, epoch: p.epoch, from: from, to: s.to}
		_, result := s.Digests()
		d.Steps = append(d.Steps, &trystpb.DeltaStep{
			Key:   rendezvous.CreateKey(o.src, o.catalog.o.Incarnation, o.dst, k.edge(), rendezvous.FrameIter{}),
			Bytes: uint64(len(s.Content)), Result: result, Method: uint32(s.Summary.Method),
		})
		from = s.to
	}
	return d
}

// deltaOf returns the delta of a key; false if it is not here any more.
func (c *Catalog) deltaOf(k *deltaKey) (delta.Delta, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	l := c.lines[k.publication]
	if l == nil || l.epoch != k.epoch {
		return delta.Delta{}, false
	}
	if m := l.deltas.fresh; m != nil && m.from.number == k.from && m.to.number == k.to {
		if one := m.byName[k.tensor]; one != nil {
			return one.delta, one.delta.Summary.Method != delta.Whole
		}
	}
	if l.deltas.chain == nil {
		return delta.Delta{}, false
	}
	path, ok := l.deltas.chain.Path(k.from, k.to)
	if !ok || len(path) != 1 {
		return delta.Delta{}, false
	}
	d, ok := path[0].Deltas[k.tensor]
	return d, ok
}
