package channel

import (
	"cmp"
	"encoding/binary"
	"maps"
	"slices"
	"time"
)

// Clone is a copy that shares nothing with c that either changes: for a search that
// tries every order of events.
func (c *Channel) Clone() *Channel {
	n := *c
	n.byID, n.asksByID = maps.Clone(c.byID), maps.Clone(c.asksByID)
	n.receives.items = slices.Clone(c.receives.items)
	for i := range n.receives.items {
		x := &n.receives.items[i]
		x.value = x.value.Clone()
		if x.each != nil {
			each := *x.each
			x.each = &each
		}
	}
	n.asks.items = slices.Clone(c.asks.items)
	for i := range n.asks.items {
		a := &n.asks.items[i]
		a.value = a.value.Clone()
	}
	n.shares.items, n.shares.lists = slices.Clone(c.shares.items), slices.Clone(c.shares.lists)
	n.receives.lists, n.asks.lists, n.metas.of.lists = slices.Clone(c.receives.lists), slices.Clone(c.asks.lists), slices.Clone(c.metas.of.lists)
	n.slots.of, n.slots.free = slices.Clone(c.slots.of), cloneQueue(c.slots.free)
	n.metas.byKey, n.metas.of.items = maps.Clone(c.metas.byKey), slices.Clone(c.metas.of.items)
	for i := range n.metas.of.items {
		n.metas.of.items[i].value = n.metas.of.items[i].value.Clone()
	}
	for i := range n.rails[:c.cfg.Rails] {
		r := &n.rails[i]
		r.posts = cloneQueue(r.posts)
	}
	n.cancelled, n.waiting, n.unknown = cloneQueue(c.cancelled), cloneQueue(c.waiting), cloneQueue(c.unknown)
	n.say.finished.ids, n.say.cancelled.ids = cloneQueue(c.say.finished.ids), cloneQueue(c.say.cancelled.ids)
	n.say.under = cloneQueue(c.say.under)
	n.acts, n.spare, n.out, n.riders = slices.Clone(c.acts), nil, nil, nil
	return &n
}

func cloneQueue[T any](q queue[T]) queue[T] {
	q.ring = slices.Clone(q.ring)
	return q
}

// AppendState writes what makes a difference for what can happen later: two
// channels with the same text behave alike. Counts are given by their differences,
// times by whether they are set.
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
	flag(c.greeted, c.heard, c.bye.wanted, c.bye.posted, c.watched)
	set(c.tellBy)
	for i := range c.rails[:c.cfg.Rails] {
		r := &c.rails[i]
		num(uint64(r.sent-r.told), uint64(r.taken-r.said), uint64(r.repost), uint64(r.unsigned), uint64(r.posts.n)) //nolint:gosec // not negative
		flag(r.probing, r.starved)
		set(r.blocked)
		for k := range r.posts.n {
			p := r.posts.at(k)
			num(uint64(p.kind), uint64(p.bytes)) //nolint:gosec // not negative
			if p.kind == postContent {
				num(c.asks.at(p.ask).id)
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
			num(c.asks.at(s.ask).id, uint64(s.list), s.from)
		}
	}
	for l := listToAsk; l <= listGivenUp; l++ {
		num(uint64(c.receives.lists[l].n)) //nolint:gosec // not negative
		for r := c.receives.first(l); r != none; r = c.receives.at(r).next {
			x := c.receives.at(r)
			num(x.id, uint64(x.attempt), uint64(x.imm), uint64(x.done), x.dest.Handle, uint64(x.dest.First), x.value.Size)
			flag(x.over, x.placed, x.hasDest, x.told, x.each != nil, x.each != nil && x.each.err != nil, x.riders > c.say.finished.out)
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
	for _, id := range slices.Sorted(maps.Keys(c.asksByID)) {
		a := c.asks.at(c.asksByID[id])
		num(id, uint64(a.attempt), uint64(a.state), uint64(a.dest.Imm), uint64(a.dest.First), a.dest.Rails[a.dest.First].Addr, a.value.Size, a.source.Handle, uint64(a.flying)) //nolint:gosec // not negative
		flag(a.hasDest, a.err != nil, a.elsewhere, a.cancelled, a.placed, a.written, a.unstaged)
		num(uint64(a.open)) //nolint:gosec // not negative
	}
	for l := listToAnswer; l <= listToPlace; l++ {
		for r := c.asks.first(l); r != none; r = c.asks.at(r).next {
			num(c.asks.at(r).id)
		}
	}
	ids(&c.cancelled)
	ids(&c.waiting)
	ids(&c.unknown)
	for _, s := range []*said{&c.say.finished, &c.say.cancelled} {
		ids(&s.ids)
		num(uint64(s.out - s.taken))
		flag(s.wanted > s.taken)
	}
	num(uint64(c.say.under.n)) //nolint:gosec // not negative
	for i := range c.say.under.n {
		m := c.say.under.at(i)
		num(uint64(c.rails[0].sent-m.sent), uint64(c.say.finished.out-m.upTo.Finish), uint64(c.say.cancelled.out-m.upTo.Cancel))
	}
	return b
}
