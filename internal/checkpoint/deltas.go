package checkpoint

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/tryst-rdma/tryst/internal/delta"
	"github.com/tryst-rdma/tryst/tensor"
)

// Deltas of a publication. When a version takes the place of another one, and a watcher wants deltas, one goroutine makes
// them, once for all watchers:
//
//	Update ─► making: look at all tensors ─► encode one after the other ─► fresh
//	                  │ until the end of this it has references                │ when the next version enters
//	                  └ to both versions                                       └─► chain, and from there oldest first to nowhere
//
// The goroutine holds the version before, at most for deltasWithin, and gives each of its tensors back when it is done with it.
// Fresh and chain together take at most 1/deltaShare of the publication.
type deltas struct {
	takers  takers
	entered uint64 // versions

	chain *delta.Chain // nil without one
	bytes int64        // of the publication that chain is for
	fresh *making      // of the current version; nil if there is none
}

// making is the deltas from one version to the next, while they are made and after. The catalog's lock guards what changes
// in it.
type making struct {
	from, to *publication
	stop     context.CancelFunc
	until    time.Time     // what is not made by then never is
	looked   chan struct{} // closed when all tensors have an estimate
	tensors  []*made       // in the order of the manifest of the new version
	byName   map[string]*made
}

// made is the delta of one tensor.
type made struct {
	old, new *tensor.Tensor // with references, until done
	pair     delta.Pair
	estimate delta.Summary // valid when the making is looked
	work     time.Duration // of one core, to make it; as estimate
	done     chan struct{} // closed when it is there, or will not be
	delta    delta.Delta   // its method is Whole if there is none
}

// deltasLocked is called when p takes the place of a version. It begins to make the deltas between the two.
func (c *Catalog) deltasLocked(l *line, before, p *publication) {
	d := &l.deltas
	d.entered++
	if before != nil && before.dropped {
		before = d.drop()
	}
	d.keep(p.manifest.Bytes)
	rate, wanted := d.takers.slowest(d.entered)
	if before == nil || !before.inMemory || !p.inMemory || c.closed || c.o.NoDeltas || !l.watchedLocked() || !wanted ||
		!delta.Pays(p.manifest.Bytes, rate) {
		d.chain = nil // nothing leads to p
		return
	}
	m := newMaking(before, p)
	ctx, stop := context.WithTimeout(context.Background(), deltasWithin)
	m.until, _ = ctx.Deadline()
	m.stop, d.fresh = stop, m
	c.work.Go(func() {
		defer stop()
		c.makeDeltas(ctx, l, m, rate)
	})
}

// drop forgets the deltas to a version that was dropped. It returns the version that they begin at, from which deltas to the
// next one can be made; nil if that is not there any more.
func (d *deltas) drop() *publication {
	m := d.fresh
	d.fresh = nil
	if m == nil {
		return nil
	}
	m.stop()
	if m.from.ended {
		return nil
	}
	return m.from
}

// keep adds the deltas to the version before to the chain, before those of the next one are made. After drop there are none,
// and the chain leads to where the next ones begin.
func (d *deltas) keep(publication int64) {
	m := d.fresh
	d.fresh = nil
	if d.bytes != publication {
		d.chain, d.bytes = nil, publication
	}
	if m == nil {
		return
	}
	m.stop()
	if d.chain == nil {
		d.chain = delta.NewChain(publication)
	}
	d.chain.Add(m.step())
}

// clear forgets all deltas, and ends the making of others.
func (d *deltas) clear() {
	if d.fresh != nil {
		d.fresh.stop()
	}
	d.chain, d.fresh = nil, nil
}

// endedLocked is called when a version ends. Without the new version its deltas are not needed.
func (d *deltas) endedLocked(p *publication) {
	if d.fresh != nil && d.fresh.to == p {
		d.clear()
	}
}

// newMaking takes references to the tensors of two versions that a delta can lead between.
func newMaking(from, to *publication) *making {
	m := &making{from: from, to: to, looked: make(chan struct{}), byName: make(map[string]*made)}
	for _, e := range to.entries {
		old := from.byName[e.info.Name]
		if old == nil || !sameLayout(old.info, e.info) {
			continue
		}
		one := &made{old: old.held.Retain(), new: e.held.Retain(), done: make(chan struct{}), pair: delta.Pair{
			Old: old.held.Bytes(), New: e.held.Bytes(), Base: old.info.Digest, Result: e.info.Digest, Unit: delta.Unit(e.info.DType.Size()),
		}}
		m.tensors, m.byName[e.info.Name] = append(m.tensors, one), one
	}
	return m
}

// sameLayout reports whether a delta may lead from one tensor to another: they have the same type and shape, and are plain
// memory.
func sameLayout(a, b *TensorInfo) bool {
	return a.DType.Plain() && a.DType == b.DType && a.Shape.Equal(b.Shape) && a.Bytes == b.Bytes
}

// step returns what was made.
func (m *making) step() delta.Step {
	s := delta.Step{From: m.from.number, To: m.to.number, Deltas: make(map[string]delta.Delta, len(m.byName))}
	for name, one := range m.byName {
		if one.delta.Summary.Method != delta.Whole {
			s.Deltas[name] = one.delta
		}
	}
	return s
}

// makeDeltas is the goroutine of a making.
func (c *Catalog) makeDeltas(ctx context.Context, l *line, m *making, rate float64) {
	defer c.madeDeltas(l)
	defer m.release()
	for _, one := range m.tensors {
		if ctx.Err() == nil {
			one.look(rate)
		}
	}
	budget := c.roomForDeltas(l, m)
	m.fit(budget)
	close(m.looked)
	e, err := delta.NewEncoder()
	if err != nil {
		c.o.Logger.Debug("no deltas are made", "reason", err)
		return
	}
	begin := time.Now()
	total := c.encode(ctx, e, m, budget, rate)
	c.o.Logger.Debug("deltas were made", "publication", m.to.manifest.Name, "from", m.from.number, "to", m.to.number, "bytes", total, "seconds", time.Since(begin).Seconds())
}

// encode makes the deltas of a making, as many as there is a budget for, and returns how many bytes they have.
func (c *Catalog) encode(ctx context.Context, e *delta.Encoder, m *making, budget int64, rate float64) (total int64) {
	e.Stop = func() bool { return ctx.Err() != nil }
	var scratch []byte
	for _, one := range m.tensors {
		if one.estimate.Method != delta.Whole && budget > 0 && ctx.Err() == nil {
			var n int64
			e.Limit = budget
			scratch, n = c.makeDelta(e, one, scratch, rate)
			budget, total = budget-n, total+n
		}
		one.finish()
	}
	return total
}

// makeDelta makes the delta of a tensor if that gains, and returns its length, and memory for the next one.
func (c *Catalog) makeDelta(e *delta.Encoder, one *made, scratch []byte, rate float64) (kept []byte, n int64) {
	out, s := e.Encode(scratch[:0], one.pair, rate)
	if s.Method != delta.Whole {
		content := make([]byte, len(out)) // and no more: it may stay for long
		n = int64(copy(content, out))
		c.mu.Lock()
		one.delta = delta.Delta{Content: content, Summary: s}
		c.mu.Unlock()
	}
	if cap(out) > deltaScratch {
		return nil, n
	}
	return out, n
}

// madeDeltas is called when a making holds nothing any more: an update may wait for that.
func (c *Catalog) madeDeltas(l *line) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l.waiting > 0 {
		l.changedLocked()
	}
}

// look estimates the delta.
func (one *made) look(rate float64) {
	p := &one.pair
	if bytes.Equal(p.Base, p.Result) {
		one.estimate = delta.Summary{Method: delta.Nothing, Length: int64(len(p.New)), Bytes: int64(len(p.Base) + len(p.Result))}
		return
	}
	if !delta.Pays(int64(len(p.New)), rate) {
		return
	}
	s := delta.Look(p.Old, p.New, p.Unit)
	if one.estimate = s.Summary(); s.Choose(rate) == delta.Whole {
		one.estimate.Method = delta.Whole
	}
	one.work = one.estimate.Encode().Work
}

// ready returns after which time the deltas are made that are not there yet, by the estimates. The making must be looked.
func (m *making) ready() map[*made]time.Duration {
	left := make(map[*made]time.Duration)
	sum := time.Duration(0)
	for _, one := range m.tensors {
		select {
		case <-one.done:
			continue
		default:
		}
		if one.estimate.Method != delta.Whole {
			sum += one.work
		}
		left[one] = max(sum, 1)
	}
	return left
}

// finish releases the tensors. Then the delta does not change any more.
func (one *made) finish() {
	if one.old == nil {
		return
	}
	one.old.Release()
	one.new.Release()
	one.old, one.new, one.pair = nil, nil, delta.Pair{}
	close(one.done)
}

// release releases the tensors of a making that was stopped.
func (m *making) release() {
	for _, one := range m.tensors {
		one.finish()
	}
}

// roomForDeltas returns how many bytes the deltas of a making may take. Older ones make room, and where that does not
// suffice, fit decides.
func (c *Catalog) roomForDeltas(l *line, m *making) int64 {
	wanted := int64(0)
	for _, one := range m.tensors {
		if one.estimate.Method != delta.Whole {
			wanted += one.estimate.Bytes
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	room := m.to.manifest.Bytes / deltaShare
	d := &l.deltas
	if d.fresh != m || d.chain == nil {
		return room
	}
	for wanted > room-d.chain.Bytes() && d.chain.DropOldest() > 0 {
	}
	return room - d.chain.Bytes()
}

// fit gives up the deltas that save least, until the others take at most room bytes.
func (m *making) fit(room int64) {
	all := slices.Clone(m.tensors)
	slices.SortStableFunc(all, func(a, b *made) int { return cmp.Compare(a.share(), b.share()) })
	for _, one := range all {
		switch {
		case one.estimate.Method == delta.Whole:
		case one.estimate.Bytes > room:
			one.estimate.Method = delta.Whole
		default:
			room -= one.estimate.Bytes
		}
	}
}

// share is which share of the tensor its delta takes.
func (one *made) share() float64 {
	return float64(one.estimate.Bytes) / float64(max(one.estimate.Length, 1))
}
