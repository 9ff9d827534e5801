package channel

import (
	"cmp"
	"encoding/binary"
	"maps"
	"slices"
	"time"
)

// Clone returns a copy. Neither channel changes memory of the other. It is for the searches
// in tests, which try every order of events.
func (c *Channel) Clone() *Channel {
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
	n.acts, n.spare, n.out, n.ackBuf = slices.Clone(c.acts), nil, nil, nil
	return &n
}

func cloneQueue[T any](q queue[T]) queue[T] {
	q.ring = slices.Clone(q.ring)
	return q
}

// AppendState encodes the state that later behaviour depends on: two channels with the same
// encoding behave alike. Of counts it has the differences, of times whether they are set.
func (c *Channel) AppendState(b []byte) []byte {
	num := func(xs ...uint64) {
		for _, x := range xs {
			b = binary.AppendUvarint(b, x)
		}
	}
	flag := func(xs ...bool) {
		for _, x := range xs {
			if x {
				num(1)
			} else {
				num(0)
			}
		}
	}
	ids := func(q *queue[uint64]) {
		num(uint64(q.n)) //nolint:gosec // not negative
		for i := range q.n {
			num(*q.at(i))
		}
	}
	set := func(t time.Time) { flag(!t.IsZero()) }
	num(uint64(c.state), uint64(len(c.acts)))
	flag(c.helloSent, c.helloReceived, c.bye.wanted, c.bye.posted, c.watched)
	set(c.countsBy)
	for i := range c.rails[:c.cfg.Rails] {
		r := &c.rails[i]
		num(uint64(r.sent-r.confirmed), uint64(r.taken-r.reported), uint64(r.toRepost), uint64(r.unsignaled), uint64(r.posts.n)) //nolint:gosec // not negative
		flag(r.probing, r.starved)
		set(r.blocked)
		for k := range r.posts.n {
			p := r.posts.at(k)
			num(uint64(p.kind), uint64(p.bytes)) //nolint:gosec // not negative
			if p.kind == postContent {
				num(c.requests.at(p.request).id)
			}
		}
		var shares []*share
		for l := range shareLists {
			num(uint64(c.shares.lists[l.on(i)].n)) //nolint:gosec // not negative
			for s := c.shares.first(l.on(i)); s != none; s = c.shares.at(s).next {
				shares = append(shares, c.shares.at(s))
			}
		}
		slices.SortFunc(shares, func(x, y *share) int { return cmp.Compare(x.turn, y.turn) })
		for _, s := range shares {
			num(c.requests.at(s.request).id, uint64(s.list), s.from)
		}
	}
	for l := listToRequest; l <= listCancelled; l++ {
		num(uint64(c.receives.lists[l].n)) //nolint:gosec // not negative
		for r := c.receives.first(l); r != none; r = c.receives.at(r).next {
			x := c.receives.at(r)
			num(x.id, uint64(x.attempt), uint64(x.imm), uint64(x.railsDone), x.dest.Handle, uint64(x.dest.First), x.value.Size)
			flag(x.ended, x.gotMeta, x.hasDest, x.destSent, x.final != nil, x.final != nil && x.final.err != nil, x.acksUpTo > c.pending.acks.sent)
		}
	}
	for i := range c.slots.of {
		num(uint64(c.slots.of[i].generation))
		flag(c.slots.of[i].receive != none)
	}
	for r := c.metas.of.first(byUse); r != none; r = c.metas.of.at(r).next {
		k := c.metas.of.at(r)
		b = append(append(b, k.key...), k.value.Dims...)
		num(k.value.Size)
	}
	for _, id := range slices.Sorted(maps.Keys(c.requestsByID)) {
		a := c.requests.at(c.requestsByID[id])
		num(id, uint64(a.attempt), uint64(a.state), uint64(a.dest.Imm), uint64(a.dest.First), a.dest.Rails[a.dest.First].Addr, a.value.Size, a.source.Handle, uint64(a.inFlight)) //nolint:gosec // not negative
		flag(a.hasDest, a.err != nil, a.fallback, a.cancelled, a.metaSent, a.written, a.unstaged)
		num(uint64(a.openShares)) //nolint:gosec // not negative
	}
	for l := listToRespond; l <= listAwaitsDest; l++ {
		for r := c.requests.first(l); r != none; r = c.requests.at(r).next {
			num(c.requests.at(r).id)
		}
	}
	ids(&c.cancelledIDs)
	ids(&c.waitingIDs)
	ids(&c.unknownIDs)
	for _, s := range []*idQueue{&c.pending.acks, &c.pending.cancels} {
		ids(&s.ids)
		num(uint64(s.sent - s.taken))
		flag(s.wanted > s.taken)
	}
	num(uint64(c.pending.unconfirmed.n)) //nolint:gosec // not negative
	for i := range c.pending.unconfirmed.n {
		m := c.pending.unconfirmed.at(i)
		num(uint64(c.rails[0].sent-m.sent), uint64(c.pending.acks.sent-m.upTo.Acks), uint64(c.pending.cancels.sent-m.upTo.Cancels))
	}
	return b
}
