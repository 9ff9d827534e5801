package delivery

import "context"

// The order of values (ARCHITECTURE.md section 3, rule 3). A value that was matched to a receive
// may have to go back to its key: its receive was cancelled, there is no space for the value, or
// its requester has gone. Until the value is back, no later receive may match: it would get a value
// that was sent after that one. So a local receive begins only when nothing of its requester
// is on the way back: neither a value, nor a receive that was taken back and may still end with one.
// Until then it waits in order.waiting. Nothing on the way back waits for it.

// fetch is a local receive under way.
type fetch struct {
	requester string // its name
	stop      context.CancelFunc
	begin     *responseAction // doFetch while it waits in order.waiting; else nil
	stopped   bool            // it was taken back, and has not ended
}

// order is guarded by the lock of the cache.
type order struct {
	held    map[string]int // by the name of a requester: how much of it is on the way back
	waiting []uint64       // fetches in the order of their requests; also some that wait no more
	changed bool           // one of them may have become due
}

func newOrder() order { return order{held: make(map[string]int)} }

// hold makes the receives for a requester wait until letGo.
func (o *order) hold(requester string) { o.held[requester]++ }

func (o *order) letGo(requester string) {
	if o.held[requester]--; o.held[requester] == 0 {
		delete(o.held, requester)
		o.changed = true
	}
}

// mayMatch reports whether a local receive may begin now.
func (o *order) mayMatch(a *responseAction) bool { return o.held[a.request.Requester.Name] == 0 }

// due takes the local receives that may begin now.
func (c *ResponseCache) due() (calls []responseAction) {
	o := &c.order
	if !o.changed || len(o.waiting) == 0 {
		return nil
	}
	o.changed = false
	still := o.waiting[:0]
	for _, id := range o.waiting {
		switch f := c.fetches[id]; {
		case f.begin == nil:
		case o.mayMatch(f.begin):
			calls = append(calls, *f.begin)
			f.begin = nil
			c.fetches[id] = f
		default:
			still = append(still, id)
		}
	}
	if o.waiting = still; len(still) == 0 {
		o.waiting = nil
	}
	return calls
}

// stop takes a local receive back. One that has not begun is returned: it has to begin, and
// ends at once without a value, since its context has ended.
func (c *ResponseCache) stop(id uint64) (calls []responseAction) {
	f, ok := c.fetches[id]
	if !ok || f.stopped {
		return nil
	}
	f.stop()
	c.order.hold(f.requester)
	if f.begin != nil {
		calls = append(calls, *f.begin)
	}
	f.begin, f.stopped = nil, true
	c.fetches[id] = f
	return calls
}

// underWay reports whether a local receive has not ended.
func (c *ResponseCache) underWay(id uint64) bool {
	_, ok := c.fetches[id]
	return ok
}

// ended notes that a local receive has ended.
func (c *ResponseCache) ended(id uint64) {
	f := c.fetches[id]
	f.stop() // releases what the context holds
	if f.stopped {
		c.order.letGo(f.requester)
	}
	delete(c.fetches, id)
	c.changed.Broadcast()
}
