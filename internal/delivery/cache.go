package delivery

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/transport"
)

// CacheOptions configures a ResponseCache. Zero fields take the defaults of limits.go;
// KeptTotal has none, and 0 is no limit.
type CacheOptions struct {
	MaxWaiting       int   // receives of one requester without a response
	MaxWaitingBytes  int64 // bytes of their keys
	MaxRemembered    int   // ids that are remembered for one requester, beside those of its receives
	KeptPerRequester int64 // bytes of responses kept for one requester
	KeptTotal        int64 // bytes of responses kept for all
	// Addressed reports whether the cluster has an address for the name of a requester,
	// and Verify calls that address and returns the incarnation of the process there. Nil
	// where no name has an address.
	Addressed func(name string) bool
	// Left reports whether the task of a name has left the cluster: its process is refused. Nil where none leaves.
	Left   func(name string) bool
	Verify func(ctx context.Context, name string) (incarnation uint64, err error)
}

// ResponseCache implements transport.ResponseCache. It owns no goroutine but a timer while
// something is to be dropped or forgotten.
type ResponseCache struct {
	values Values
	verify func(ctx context.Context, name string) (uint64, error)

	mu      sync.Mutex // guards what follows; of values only TakeLocal is called with it held
	table   *responses
	fetches map[uint64]fetch // local receives under way, by id
	timer   *time.Timer      // nil when not armed
	closed  bool

	// Values on their way back to the rendezvous, in order. One goroutine at a time gives
	// them back.
	backs         []responseAction
	giving        bool
	queued, given uint64     // counts of values that were put into backs, and that are back
	changed       *sync.Cond // a local receive has ended, a value is back, or a cancel is over

	order order // which local receives wait until earlier values are back

	work sync.WaitGroup // local receives under way, and memory that is being released
}

// NewResponseCache returns a cache whose values come from values.
func NewResponseCache(values Values, o CacheOptions) *ResponseCache {
	limits := cacheLimits{
		maxWaiting: o.MaxWaiting, maxWaitingBytes: o.MaxWaitingBytes, maxRemembered: o.MaxRemembered,
		keptPerRequester: o.KeptPerRequester, keptTotal: o.KeptTotal, addressed: o.Addressed, left: o.Left,
	}
	if limits.maxWaiting == 0 {
		limits.maxWaiting = transport.DefaultMaxWaiting
	}
	if limits.maxWaitingBytes == 0 {
		limits.maxWaitingBytes = transport.DefaultMaxWaitingBytes
	}
	if limits.keptPerRequester == 0 {
		limits.keptPerRequester = transport.DefaultKeptPerRequester
	}
	if limits.keptTotal == 0 {
		limits.keptTotal = math.MaxInt64
	}
	limits.keptPerAddress = max(limits.keptTotal/keptAddressPart, 1)
	// One process does not fill the share of its address by itself: what is unreachable gives way
	// when another one waits for the share.
	limits.keptPerRequester = min(limits.keptPerRequester, limits.keptPerAddress)
	if o.Verify == nil {
		limits.addressed = nil
	}
	if p, ok := values.(Publisher); ok {
		limits.republishes = p.Republishes
	}
	if r, ok := values.(Rememberer); ok {
		limits.over = r.Over
	}
	c := &ResponseCache{
		values: values, verify: o.Verify, table: newResponses(limits),
		fetches: make(map[uint64]fetch), order: newOrder(),
	}
	c.changed = sync.NewCond(&c.mu)
	return c
}

func errCacheClosed() *status.Error {
	return status.New(status.Aborted, "Call was aborted").WithKind(status.ErrShutdown)
}

// Introduce implements transport.ResponseCache.
func (c *ResponseCache) Introduce(ctx context.Context, p transport.Process, from string) error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return errCacheClosed()
	}
	accepted, acts, err := c.table.introduce(time.Now(), p, from)
	c.do(acts)
	if accepted != nil || err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, verifyWait)
	is, err := c.verify(ctx, p.Name)
	cancel()
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return errCacheClosed()
	}
	_, acts, err = c.table.verified(time.Now(), p, from, is, err)
	c.do(acts)
	return err
}

// Request implements transport.ResponseCache.
func (c *ResponseCache) Request(to transport.Replier, r transport.Request) {
	resp, ok, rest := c.RequestNow(to, r)
	if rest != nil {
		rest()
	}
	if ok {
		to.Reply(r.ID, r.Attempt, resp)
	}
}

// RequestNow implements transport.ResponseCache.
func (c *ResponseCache) RequestNow(to transport.Replier, r transport.Request) (resp transport.Response, ok bool, rest func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return transport.Response{Err: errCacheClosed()}, true, nil
	}
	calls := c.prepare(c.table.request(time.Now(), r, to))
	c.arm()
	if n := len(calls); n > 0 && calls[n-1].kind == doReply && calls[n-1].to == (call{to, r.ID, r.Attempt}) {
		resp, ok, calls = calls[n-1].response, true, calls[:n-1]
	}
	if len(calls) > 0 {
		rest = func() { c.callAll(calls) }
	}
	return resp, ok, rest
}

// Detach implements transport.ResponseCache.
func (c *ResponseCache) Detach(to transport.Replier, p transport.Process, id uint64, attempt uint32) {
	c.mu.Lock()
	c.do(c.table.detach(time.Now(), p, call{to, id, attempt}))
}

// Ack implements transport.ResponseCache.
func (c *ResponseCache) Ack(p transport.Process, ids []uint64) {
	if len(ids) == 0 {
		return
	}
	c.mu.Lock()
	c.do(c.table.ack(time.Now(), p, ids))
}

// Cancel implements transport.ResponseCache.
func (c *ResponseCache) Cancel(p transport.Process, ids []uint64) error {
	end, err := c.BeginCancel(p, ids)
	end()
	return err
}

// BeginCancel implements transport.ResponseCache. What is on its way back is in order.go.
func (c *ResponseCache) BeginCancel(p transport.Process, ids []uint64) (end func(), err error) {
	if len(ids) == 0 {
		return func() {}, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return func() {}, errCacheClosed()
	}
	acts, err := c.table.cancel(time.Now(), p, ids)
	var stopped []uint64
	for i := range acts {
		if acts[i].kind == doStopFetch {
			stopped = append(stopped, acts[i].fetch)
		}
	}
	calls := c.prepare(acts) // all of them now: a later cancel waits for what this one has prepared
	c.arm()
	return func() {
		c.callAll(calls)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.awaitBack(stopped)
	}, err
}

// awaitBack waits until the local receives have ended, and all values on their way
// back have arrived. Called with the lock held.
func (c *ResponseCache) awaitBack(stopped []uint64) {
	for _, id := range stopped {
		for c.underWay(id) {
			c.changed.Wait()
		}
	}
	for until := c.queued; c.given < until; {
		if c.giving {
			c.changed.Wait()
		} else { // the cancel that queued them may wait for this one
			c.giveBackLocked()
		}
	}
}

// EndStep implements transport.ResponseCache.
func (c *ResponseCache) EndStep(step int64) {
	c.mu.Lock()
	c.do(c.table.endStep(time.Now(), step))
}

// EndKeys releases what is kept of published values that were withdrawn, in all steps. Call it after the publisher has
// forgotten them. withdrawn is called with a lock held, and calls nobody.
func (c *ResponseCache) EndKeys(withdrawn func(rendezvous.Key) bool) {
	c.mu.Lock()
	c.do(c.table.endKeys(time.Now(), withdrawn))
}

// Connected implements transport.ResponseCache.
func (c *ResponseCache) Connected(p transport.Process) (closed func()) {
	c.mu.Lock()
	of, acts := c.table.connOpened(time.Now(), p)
	c.do(acts)
	return func() {
		c.mu.Lock()
		c.table.connClosed(time.Now(), of)
		c.do(nil)
	}
}

// Value implements transport.ResponseCache.
func (c *ResponseCache) Value(p transport.Process, id uint64, attempt uint32) (rendezvous.Value, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v, ok, err := c.table.value(p, id, attempt)
	if err != nil {
		return rendezvous.Value{}, err
	}
	if !ok && c.table.left(p.Name) {
		return rendezvous.Value{}, taskLeft(p.Name)
	}
	if !ok {
		return rendezvous.Value{}, status.Errorf(status.Aborted, "no response is kept for receive %016x: its step has ended", id).WithKind(status.ErrStepEnded)
	}
	return v, nil
}

// Holds implements transport.ResponseCache.
func (c *ResponseCache) Holds(p transport.Process) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.table.known(p)
	return k != nil && len(k.entries) > 0
}

// Stats returns a snapshot.
func (c *ResponseCache) Stats() transport.CacheStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := transport.CacheStats{Requesters: len(c.table.requesters), Waiting: c.table.waiting}
	for _, k := range c.table.requesters {
		s.Kept += len(k.entries) - k.waiting
		if k.connected() {
			s.Connected++
		}
	}
	s.Bytes = c.table.bytes - int64(s.Kept)*keptOverhead
	s.Kept += int(c.queued - c.given) //nolint:gosec // few
	return s
}

// Close ends every waiting call with Aborted, releases everything, and returns when
// every local receive has ended. Values that were matched to a call are lost with the
// process. It must not be called from a Reply. Closing twice is harmless.
func (c *ResponseCache) Close() {
	defer c.work.Wait()
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return
	}
	c.closed = true
	if c.timer != nil {
		c.timer.Stop()
	}
	var acts []responseAction
	for _, k := range c.table.requesters {
		acts = append(acts, c.table.drop(k, errCacheClosed())...)
	}
	c.do(acts)
}

// do carries out actions. It is called with the lock held and gives it up.
func (c *ResponseCache) do(acts []responseAction) {
	calls := append(c.prepare(acts), c.due()...)
	c.arm()
	c.mu.Unlock()
	c.callAll(calls)
}

// prepare does the part of actions that concerns the shell's own state, and returns those
// that call out, for callAll. A value that is there is taken at once. Called with the lock
// held.
func (c *ResponseCache) prepare(acts []responseAction) (calls []responseAction) {
	for len(acts) > 0 {
		a := acts[0]
		acts = acts[1:]
		switch a.kind {
		case doFetch:
			inOrder := c.order.mayMatch(&a)
			if len(calls) == 0 && inOrder && !c.closed && a.request.Guard == nil { // TakeLocal calls nobody
				if v, ok := c.values.TakeLocal(a.request.Step, a.request.Key); ok {
					acts = append(c.table.fetched(time.Now(), a.request, a.fetch, transport.Response{Value: v}), acts...)
					continue
				}
			}
			f := fetch{requester: a.request.Requester.Name}
			a.ctx, f.stop = context.WithCancel(rendezvous.WithGuard(context.Background(), a.request.Guard))
			c.work.Add(1)
			if inOrder {
				calls = append(calls, a)
			} else {
				f.begin = new(a)
				c.order.waiting = append(c.order.waiting, a.fetch)
			}
			c.fetches[a.fetch] = f
		case doStopFetch:
			calls = append(calls, c.stop(a.fetch)...)
		case doRestore:
			c.backs = append(c.backs, a)
			c.queued++
			c.order.hold(a.request.Requester.Name)
			c.work.Add(1)
			calls = append(calls, a)
		case doRelease:
			c.work.Add(1)
			calls = append(calls, a)
		case doReply:
			calls = append(calls, a)
		}
	}
	return calls
}

// callAll carries out what prepare has returned. Called without the lock.
func (c *ResponseCache) callAll(calls []responseAction) {
	for i := range calls {
		a := &calls[i]
		switch a.kind {
		case doFetch:
			c.fetch(a)
		case doReply:
			a.to.to.Reply(a.to.id, a.to.attempt, a.response)
		case doRestore:
			c.mu.Lock()
			c.giveBackLocked()
			c.mu.Unlock()
		case doRelease:
			c.release(&a.response, a.response.Err)
			c.work.Done()
		}
	}
}

// fetch begins a local receive.
func (c *ResponseCache) fetch(a *responseAction) {
	r, id := a.request, a.fetch
	c.values.RecvLocalAsync(a.ctx, r.Step, r.Key, func(v rendezvous.Value, _ rendezvous.Args, err error) {
		defer c.work.Done()
		c.mu.Lock()
		c.ended(id)
		c.do(c.table.fetched(time.Now(), r, id, transport.Response{Value: v, Err: err}))
	})
	if a.held {
		c.mu.Lock()
		c.do(c.table.waits(time.Now(), r, id)) // does nothing when it has ended
	}
}

// giveBackLocked gives values back to the rendezvous. The receiver of a value there may refuse
// it, and each refusal gives the value back again, here. One goroutine does it for all, so
// that these calls do not nest. Called with the lock held, which it gives up meanwhile.
func (c *ResponseCache) giveBackLocked() {
	if c.giving {
		return
	}
	c.giving = true
	for {
		for len(c.backs) > 0 {
			b := c.backs[0]
			c.backs = c.backs[1:]
			c.mu.Unlock()
			if !c.values.Restore(b.request.Step, b.request.Key, b.response.Value) {
				c.release(&b.response, notReceived(b.request))
			}
			c.work.Done()
			c.mu.Lock()
			c.given++
			c.order.letGo(b.request.Requester.Name)
			c.changed.Broadcast()
		}
		due := c.due()
		if len(due) == 0 {
			break
		}
		c.mu.Unlock()
		c.callAll(due)
		c.mu.Lock()
	}
	c.backs, c.giving = nil, false
}

// arm starts the timer when something may have to be dropped or forgotten. Nothing is due
// earlier than expireAfter from the event that made it due, so a timer that runs at most
// that long is never late.
func (c *ResponseCache) arm() {
	if c.timer == nil && !c.closed && c.table.due() {
		c.timer = time.AfterFunc(expireAfter, c.tick)
	}
}

func (c *ResponseCache) tick() {
	c.mu.Lock()
	c.timer = nil
	now := time.Now()
	acts, next := c.table.tick(now)
	if !next.IsZero() && !c.closed {
		c.timer = time.AfterFunc(min(max(next.Sub(now), minTick), expireAfter), c.tick)
	}
	c.do(acts)
}
