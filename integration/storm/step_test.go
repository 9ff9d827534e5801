//go:build linux

package storm_test

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// part is what a process does in a step.
type part struct {
	n      *node
	step   int64
	plan   plan
	again  bool
	ctx    context.Context // ends with the step
	cancel context.CancelFunc
	work   sync.WaitGroup

	mu    sync.Mutex
	leave map[int]func() // ends the receives or sends of an edge
}

// Pauses of a process.
const (
	// goneGrace is how long receives from a peer that is gone may end by themselves.
	goneGrace = 1500 * time.Millisecond
	// againTime is how long a life that takes up a step waits for values: its earlier life may
	// have had them.
	againTime = 3 * time.Second
	// churnTime is how long sends may wait where tasks come and go: longer than the peer timeout.
	churnTime = 6 * time.Second
	// retryPause is the pause after a receive that failed.
	retryPause = 100 * time.Millisecond
	// maxHasty is how many receives of a slot in a row end with their context.
	maxHasty = 8
)

// begin begins the part of this process in a step. It is answered when all sends and receives have
// ended.
func (n *node) begin(c command) {
	p := &part{n: n, step: c.Step, plan: planOf(n.Seed, c.Step), again: c.Again, leave: make(map[int]func())}
	p.ctx, p.cancel = context.WithCancel(n.ctx)
	n.mu.Lock()
	n.steps[c.Step] = p
	n.mu.Unlock()
	for i, e := range p.plan.edges {
		if e.from == n.Task && !p.again {
			p.send(i, e)
		}
		if e.to == n.Task && (!p.again || e.from != n.Task) {
			p.receive(i, e)
		}
	}
	if p.plan.ender == n.Task && !p.again {
		p.work.Go(p.endEarly)
	}
	n.work.Go(func() {
		p.work.Wait()
		n.log.write(record{Kind: kindDone, Step: p.step, Again: p.again})
		n.answer(answer{Op: opStep, Step: p.step})
	})
}

// end ends a step, of which all is done.
func (n *node) end(step int64) {
	n.mu.Lock()
	p := n.steps[step]
	delete(n.steps, step)
	n.mu.Unlock()
	if p == nil {
		return
	}
	n.log.write(record{Kind: kindEnds, Step: step})
	n.server.EndStep(step)
	p.cancel()
}

// gone ends the receives from, and sends to, a peer whose life has ended, after a while.
func (n *node) gone(c command) {
	n.mu.Lock()
	p := n.steps[c.Step]
	n.mu.Unlock()
	if p == nil {
		return
	}
	time.AfterFunc(goneGrace, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		for i, e := range p.plan.edges {
			if leave := p.leave[i]; (e.from == c.Peer || e.to == c.Peer) && leave != nil {
				leave()
			}
		}
	})
}

// endEarly ends the step before its time.
func (p *part) endEarly() {
	if !pause(p.ctx, p.plan.endAt) {
		return
	}
	if p.plan.aborts {
		p.abort()
		return
	}
	p.n.log.write(record{Kind: kindEnds, Step: p.step})
	p.n.server.EndStep(p.step)
}

// abort aborts the step.
func (p *part) abort() {
	p.n.log.write(record{Kind: kindEnds, Step: p.step})
	p.n.server.AbortStep(p.step, status.New(status.FailedPrecondition, abortText))
}

// abortText is the error with which steps are aborted.
const abortText = "the storm aborts this step"

// pause waits; false when ctx has ended before.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// send sends the values of an edge.
func (p *part) send(i int, e edge) {
	ctx, cancel := context.WithCancel(p.ctx)
	switch {
	case p.plan.ender >= 0: // the receiver may have ended the step, and the bound keeps a SendWait
		ctx, cancel = context.WithTimeout(p.ctx, againTime)
	case p.n.Churn: // the sender may have left the cluster of the receiver, which does not ask for the value
		ctx, cancel = context.WithTimeout(p.ctx, churnTime)
	}
	p.mu.Lock()
	if e.to != e.from { // the receiver's entry
		p.leave[i] = cancel
	}
	p.mu.Unlock()
	p.work.Go(func() {
		defer cancel()
		for k := range e.values {
			if e.wait > 0 && !pause(ctx, rand.N(e.wait)) || ctx.Err() != nil {
				return
			}
			p.sendOne(ctx, i, e, k)
		}
	})
}

func (p *part) sendOne(ctx context.Context, i int, e edge, k int) {
	r := record{Kind: kindSend, Step: p.step, Edge: i, Peer: e.to, Seq: k + 1}
	t, err := p.tensor(i, e, k)
	if err != nil {
		r.Kind, r.Code, r.Text = kindSent, status.CodeOf(err).String(), err.Error()
		p.n.log.write(r)
		return
	}
	c := content{Dead: true}
	if t != nil {
		c = look(t.Bytes(), false)
		p.n.damage(t.Bytes())
		defer t.Release()
	}
	r.Content = &c
	p.n.log.write(r)
	dead := e.values[k].dead
	if other := p.n.Plant.sends(k, len(e.values)); other != k {
		if t, err = p.tensor(i, e, other); err != nil {
			return
		}
		dead = e.values[other].dead
		if t != nil {
			defer t.Release()
		}
	}
	var told *rendezvous.Delivery
	if e.told {
		told, err = p.n.server.SendWait(ctx, p.step, taskName(e.to), e.name, t, dead)
	} else {
		err = p.n.server.Send(p.step, taskName(e.to), e.name, t, dead)
	}
	if p.n.Plant == plantDouble && err == nil {
		err = p.n.server.Send(p.step, taskName(e.to), e.name, t, dead)
	}
	r.Kind, r.Content = kindSent, nil
	if err != nil {
		r.Code, r.Text, r.Sort = status.CodeOf(err).String(), err.Error(), sortOf(err)
		if c := ctx.Err(); c != nil {
			r.Ctx = c.Error()
		}
	}
	p.n.log.write(r)
	if r.Code == status.DeadlineExceeded.String() || r.Code == status.NotFound.String() {
		p.abort() // it is lost, and the receiver may not know: one of the two has left, its life begins later, or it stood still
	}
	if told != nil {
		p.n.work.Go(func() { p.outcome(r, told) })
	}
}

// outcome logs what became of a value. It is known at the latest when the step has ended here.
func (p *part) outcome(r record, of *rendezvous.Delivery) {
	r.Kind = kindTold
	select {
	case <-of.Done():
	case <-p.n.ctx.Done():
		return
	}
	if err := of.Err(); err != nil {
		r.Code, r.Text = status.CodeOf(err).String(), err.Error()
	}
	p.n.log.write(p.n.changed(r))
}

// tensor makes a value, in turns in registered and in other memory; nil for a dead one.
func (p *part) tensor(i int, e edge, k int) (*tensor.Tensor, error) {
	v := e.values[k]
	if v.dead {
		return nil, nil
	}
	var a tensor.Allocator = p.n.pool
	if verbs, ok := p.n.server.Verbs(); ok && k%2 == 0 {
		a = verbs.Allocator()
	}
	shape := tensor.Vector(v.size)
	t, err := tensor.Allocate(a, tensor.Uint8, shape)
	if status.CodeOf(err) == status.ResourceExhausted { // registered memory is bounded
		t, err = tensor.Allocate(p.n.pool, tensor.Uint8, shape)
	}
	if err != nil {
		return nil, err
	}
	fill(t.Bytes(), valueOf(p.n.Seed, p.step, i, k+1, p.n.Life))
	return t, nil
}

// inbox counts the values of an edge that are still to be received.
type inbox struct {
	mu   sync.Mutex
	open int
}

func (b *inbox) take() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open == 0 {
		return false
	}
	b.open--
	return true
}

func (b *inbox) give() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.open++
}

// receive receives the values of an edge, by as many goroutines as it has slots.
func (p *part) receive(i int, e edge) {
	ctx, cancel := context.WithCancel(p.ctx)
	if p.again {
		ctx, cancel = context.WithTimeout(p.ctx, againTime)
	}
	p.mu.Lock()
	p.leave[i] = cancel
	p.mu.Unlock()
	box := &inbox{open: len(e.values)}
	var slots sync.WaitGroup
	for range e.slots {
		slots.Go(func() { p.slot(ctx, i, e, box) })
	}
	p.work.Go(func() {
		slots.Wait()
		cancel()
	})
}

// slot receives one value after the other, until all have come or none can come any more.
func (p *part) slot(ctx context.Context, i int, e edge, box *inbox) {
	for hasty, next := 0, 0; box.take(); {
		one, cancel := ctx, context.CancelFunc(func() {})
		if hasty < maxHasty && rand.Float64() < e.hasty {
			hasty++
			one, cancel = soonOver(ctx)
		}
		var dst *tensor.Tensor
		if e.into && !p.again && !e.values[next].dead { // after a restart it does not know the size
			dst = p.memory(e.values[next].size)
		}
		follows := e.slots == 1 && next+1 < len(e.values)
		err := p.receiveOne(one, i, e, dst, follows)
		ended := one.Err() != nil
		cancel()
		if err == nil {
			hasty = 0
			next++
			continue
		}
		if status.CodeOf(err) == status.DataLoss || errors.Is(err, errHidden) {
			next++
			continue // it stands for one value
		}
		box.give()
		switch {
		case ctx.Err() != nil, strings.Contains(err.Error(), abortText):
			return
		case sortOf(err) != "", status.CodeOf(err) == status.NotFound: // nothing comes any more
			return
		case p.plan.ender >= 0 && (p.plan.ender == e.from || p.plan.ender == e.to) && status.CodeOf(err) == status.Aborted:
			return
		case status.CodeOf(err) == status.InvalidArgument: // the value stays
		case !ended && !pause(ctx, retryPause):
			return
		}
	}
}

// soonOver returns a context that ends within some milliseconds, in one of two ways.
func soonOver(ctx context.Context) (context.Context, context.CancelFunc) {
	d := rand.N(20 * time.Millisecond)
	if rand.IntN(2) == 0 {
		return context.WithTimeout(ctx, d)
	}
	ctx, cancel := context.WithCancel(ctx)
	t := time.AfterFunc(d, cancel)
	return ctx, func() { t.Stop(); cancel() }
}

// receiveOne makes one receive, into dst if there is one, and logs how it ended, each time that it
// does. It takes over the reference to dst. follows says that the same goroutine receives a later
// value of the key after it.
func (p *part) receiveOne(ctx context.Context, i int, e edge, dst *tensor.Tensor, follows bool) error {
	n := p.n
	id := n.recvs.Add(1)
	r := record{Kind: kindRecv, Step: p.step, Edge: i, Peer: e.from, Recv: id, Again: p.again}
	if dst != nil {
		r.Into = 1 + dst.Size()
	}
	n.log.write(r)
	var over atomic.Int64 // when the context ended
	defer context.AfterFunc(ctx, func() { over.Store(now()) })()
	done := func(content *content, route string, err error) error {
		r := r
		r.Kind = kindGot
		if c := ctx.Err(); c != nil {
			r.Ctx, r.Over = c.Error(), over.Load()
		}
		if err != nil {
			r.Code, r.Text, r.Sort = status.CodeOf(err).String(), err.Error(), sortOf(err)
		} else {
			r.Content, r.Route = content, route
		}
		if follows && n.hides(r) {
			return errHidden
		}
		if n.hangs(r) {
			return err
		}
		n.log.write(n.changed(r))
		if n.strikes(plantTwice) {
			n.log.write(r)
		}
		return err
	}
	if dst != nil {
		return p.receiveInto(ctx, e, dst, r, done)
	}
	took := func(v rendezvous.Value, err error) error {
		if err != nil {
			return done(nil, "", err)
		}
		defer v.Tensor.Release()
		c := content{Dead: true}
		if !v.Dead {
			c = look(v.Tensor.Bytes(), false)
		}
		return done(&c, routeOf(v.Arrival()), nil)
	}
	if !e.async {
		return took(n.server.Recv(ctx, p.step, taskName(e.from), e.name))
	}
	result := make(chan error, 2) // a second call of the callback must not block
	n.server.RecvAsync(ctx, p.step, taskName(e.from), e.name, func(v rendezvous.Value, err error) { result <- took(v, err) })
	return <-result
}

// routeOf names the device of this process that a value came by, and the transport without one.
func routeOf(a rendezvous.Arrival) string { return cmp.Or(a.Device, a.Transport) }

// sortOf names the kind of an error after which nothing comes in its step any more; "" for others.
func sortOf(err error) string {
	switch {
	case errors.Is(err, status.ErrTaskLeft):
		return sortLeft
	case errors.Is(err, status.ErrStepEnded):
		return sortEnded
	}
	return ""
}

// errHidden is the result of a receive that the node pretends not to have made.
var errHidden = errors.New("the receive is hidden from the log")
