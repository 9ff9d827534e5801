package channel

import (
	"cmp"
	"encoding/binary"
	"maps"
	"slices"
	"time"
)

// SearchCopy returns a copy. Neither channel changes memory of the other.
func (c *Channel) SearchCopy() *Channel {
	n := *c
	n.byID, n.requestsByID = maps.Clone(c.byID), maps.Clone(c.requestsByID)
	n.receives.items = slices.Clone(c.receives.items)
	for i := range n.receives.items {
		x := &n.receives.items[i]
		x.value = x.value.Clone()
		if x.final != nil {
			each := *x.final
			x.final = &each
		}
	}
	n.requests.items = slices.Clone(c.requests.items)
	for i := range n.requests.items {
		a := &n.requests.items[i]
		a.value = a.value.Clone()
	}
	n.shares.items, n.shares.lists = slices.Clone(c.shares.items), slices.Clone(c.shares.lists)
	n.receives.lists, n.requests.lists, n.metas.of.lists = slices.Clone(c.receives.lists), slices.Clone(c.requests.lists), slices.Clone(c.metas.of.lists)
	n.slots.of, n.slots.free = slices.Clone(c.slots.of), cloneQueue(c.slots.free)
	n.metas.byKey, n.metas.of.items = maps.Clone(c.metas.byKey), slices.Clone(c.metas.of.items)
	for i := range n.metas.of.items {
		n.metas.of.items[i].value = n.metas.of.items[i].value.Clone()
	}
	for i := range n.rails[:c.cfg.Rails] {
		r := &n.rails[i]
		r.posts = cloneQueue(r.posts)
	}
	n.cancelledIDs, n.waitingIDs, n.unknownIDs = cloneQueue(c.cancelledIDs), cloneQueue(c.waitingIDs), cloneQueue(c.unknownIDs)
	n.pending.acks.ids, n.pending.cancels.ids = cloneQueue(c.pending.acks.ids), cloneQueue(c.pending.cancels.ids)
	n.pending.unconfirmed = cloneQueue(c.pending.unconfirmed)
	n.pending.unbatched = maps.Clone(c.pending.unbatched)
	n.acts, n.spare, n.out, n.ackBuf = slices.Clone(c.acts), nil, nil, nil
	return &n
}

func cloneQueue[T any](q queue[T]) queue[T] {
	q.ring = slices.Clone(q.ring)
	return q
}

// AppendSearchState encodes the state that later behaviour depends on: two channels with the same
// encoding behave alike. Of counts it has the differences, of times whether they are set.
func (c *Channel) AppendSearchState(b []byte) []byte {
	e := stateEncoder{b}
	e.num(uint64(c.state), uint64(len(c.acts)))
	e.flag(c.helloSent, c.helloReceived, c.bye.wanted, c.bye.posted, c.watched)
	e.isSet(c.countsBy)
	for i := range c.rails[:c.cfg.Rails] {
		e.rail(c, i)
	}
	e.receives(c)
	for i := range c.slots.of {
		e.num(uint64(c.slots.of[i].generation))
		e.flag(c.slots.of[i].receive != none)
	}
	for r := c.metas.of.first(byUse); r != none; r = c.metas.of.at(r).next {
		k := c.metas.of.at(r)
		e.b = append(append(e.b, k.key...), k.value.Dims...)
		e.num(k.value.Size)
	}
	e.requests(c)
	e.pending(c)
	return e.b
}

// stateEncoder appends parts of a channel's state to b.
type stateEncoder struct{ b []byte }

func (e *stateEncoder) num(xs ...uint64) {
	for _, x := range xs {
		e.b = binary.AppendUvarint(e.b, x)
	}
}

func (e *stateEncoder) count(n int) { e.num(uint64(n)) } //nolint:gosec // not negative

func (e *stateEncoder) flag(xs ...bool) {
	for _, x := range xs {
		if x {
			e.num(1)
		} else {
			e.num(0)
		}
	}
}

func (e *stateEncoder) isSet(t time.Time) { e.flag(!t.IsZero()) }

func (e *stateEncoder) ids(q *queue[uint64]) {
	e.count(q.n)
	for i := range q.n {
		e.num(*q.at(i))
	}
}

// rail encodes a rail, with its shares.
func (e *stateEncoder) rail(c *Channel, i int) {
	r := &c.rails[i]
	e.num(uint64(r.sent-r.confirmed), uint64(r.taken-r.reported), uint64(r.toRepost), uint64(r.unsignaled)) //nolint:gosec // not negative
	e.count(r.posts.n)
	e.flag(r.probing, r.starved)
	e.isSet(r.blocked)
	for k := range r.posts.n {
		p := r.posts.at(k)
		e.num(uint64(p.kind), uint64(p.bytes)) //nolint:gosec // not negative
		if p.kind == postContent {
			e.num(c.requests.at(p.request).id)
		}
	}
	var shares []*share
	for l := range shareLists {
		e.count(c.shares.lists[l.on(i)].n)
		for s := c.shares.first(l.on(i)); s != none; s = c.shares.at(s).next {
			shares = append(shares, c.shares.at(s))
		}
	}
	slices.SortFunc(shares, func(x, y *share) int { return cmp.Compare(x.turn, y.turn) })
	for _, s := range shares {
		e.num(c.requests.at(s.request).id, uint64(s.list), s.from)
	}
}

// receives encodes the receives of this side, by list.
func (e *stateEncoder) receives(c *Channel) {
	for l := listToRequest; l <= listCancelled; l++ {
		e.count(c.receives.lists[l].n)
		for r := c.receives.first(l); r != none; r = c.receives.at(r).next {
			x := c.receives.at(r)
			e.num(x.id, uint64(x.attempt), uint64(x.imm), uint64(x.railsDone), x.dest.Handle, uint64(x.dest.First), x.value.Size)
			e.flag(x.ended, x.gotMeta, x.hasDest, x.destSent, x.final != nil, x.final != nil && x.final.err != nil, x.acksUpTo > c.pending.acks.sent)
		}
	}
}

// requests encodes the requests of the peer, by id, and their order in each list.
func (e *stateEncoder) requests(c *Channel) {
	for _, id := range slices.Sorted(maps.Keys(c.requestsByID)) {
		a := c.requests.at(c.requestsByID[id])
		e.num(id, uint64(a.attempt), uint64(a.state), uint64(a.dest.Imm), uint64(a.dest.First), a.dest.Rails[a.dest.First].Addr, a.value.Size, a.source.Handle)
		e.count(a.inFlight)
		e.flag(a.hasDest, a.err != nil, a.fallback, a.cancelled, a.metaSent, a.written, a.unstaged)
		e.count(a.openShares)
	}
	for l := listToRespond; l <= listAwaitsDest; l++ {
		for r := c.requests.first(l); r != none; r = c.requests.at(r).next {
			e.num(c.requests.at(r).id)
		}
	}
}

// pending encodes the ids to send and to be confirmed.
func (e *stateEncoder) pending(c *Channel) {
	e.ids(&c.cancelledIDs)
	e.ids(&c.waitingIDs)
	e.ids(&c.unknownIDs)
	for _, s := range []*idQueue{&c.pending.acks, &c.pending.cancels} {
		e.ids(&s.ids)
		e.num(uint64(s.sent - s.taken))
		e.flag(s.wanted > s.taken)
	}
	e.count(len(c.pending.unbatched))
	for _, id := range slices.Sorted(maps.Keys(c.pending.unbatched)) {
		e.num(id)
	}
	e.count(c.pending.unconfirmed.n)
	for i := range c.pending.unconfirmed.n {
		m := c.pending.unconfirmed.at(i)
		e.num(uint64(c.rails[0].sent-m.sent), uint64(c.pending.acks.sent-m.upTo.Acks), uint64(c.pending.cancels.sent-m.upTo.Cancels))
	}
}
