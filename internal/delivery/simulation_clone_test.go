package delivery

import (
	"container/list"
	"encoding/binary"
	"maps"
	"slices"

	"github.com/tryst-rdma/tryst/rendezvous"
)

// Copies of the machines, and what of them makes a difference, for a search.

func cloneResponses(t *responses) *responses {
	n := newResponses(t.limits)
	n.next, n.waiting, n.waitBytes, n.bytes, n.blocked = t.next, t.waiting, t.waitBytes, t.bytes, t.blocked
	n.unaddressed, n.ids, n.full, n.round = t.unaddressed, t.ids, t.full, t.round
	for address, s := range t.origins {
		n.origins[address] = &origin{address: s.address, requesters: s.requesters, unaddressed: s.unaddressed, ids: s.ids, bytes: s.bytes, full: s.full}
	}
	entries := make(map[*entry]*entry)
	for name, k := range t.requesters {
		c := &requester{
			name: name, incarnation: k.incarnation, origin: n.origins[k.origin.address], addressed: k.addressed,
			past:  past{ends: maps.Clone(k.past.ends), order: slices.Clone(k.past.order), lost: maps.Clone(k.past.lost), owed: cloneOwed(k.past.owed)},
			conns: k.conns, calls: k.calls, connects: k.connects, newcomer: k.newcomer, connectsAt: k.connectsAt, drain: k.drain,
			since: k.since, displaced: k.displaced, waiting: k.waiting, waitBytes: k.waitBytes, bytes: k.bytes,
			entries: make(map[uint64]*entry),
		}
		for id, e := range k.entries {
			x := *e
			x.requester, x.calls = c, slices.Clone(e.calls)
			c.entries[id] = &x
			entries[e] = &x
		}
		for at := k.limited.Front(); at != nil; at = at.Next() {
			x := entries[item[*entry](at)]
			x.place = c.limited.PushBack(x)
		}
		n.requesters[name] = c
	}
	each := func(from, to *list.List, set func(k *requester, at *list.Element)) {
		for at := from.Front(); at != nil; at = at.Next() {
			k := n.requesters[item[*requester](at).name]
			set(k, to.PushBack(k))
		}
	}
	each(&t.turns, &n.turns, func(k *requester, at *list.Element) { k.turn = at })
	each(&t.lost, &n.lost, func(k *requester, at *list.Element) { k.in, k.at = &n.lost, at })
	each(&t.resting, &n.resting, func(k *requester, at *list.Element) { k.in, k.at = &n.resting, at })
	each(&t.idle, &n.idle, func(k *requester, at *list.Element) { k.in, k.at, k.atOrigin = &n.idle, at, k.origin.idle.PushBack(k) })
	each(&t.remembering, &n.remembering, func(k *requester, at *list.Element) { k.past.listed = at })
	for step, es := range t.steps {
		n.steps[step] = stepEntries{entries[es.first], entries[es.last]}
		for e := es.first; e != nil; e = e.after {
			entries[e].before, entries[e].after = entries[e.before], entries[e.after]
		}
	}
	return n
}

func cloneRequests(m *requests) *requests {
	n := *m
	n.transfers = map[uint64]*Transfer{}
	old := make(map[*Transfer]*Transfer)
	one := func(t *Transfer) *Transfer {
		if old[t] == nil {
			x := *t
			old[t] = &x
		}
		return old[t]
	}
	for id, t := range m.transfers {
		n.transfers[id] = one(t)
	}
	n.fresh, n.again = slices.Clone(m.fresh), slices.Clone(m.again)
	for i, t := range n.fresh {
		n.fresh[i] = one(t)
	}
	for i, t := range n.again {
		n.again[i] = one(t)
	}
	n.pending, n.cancelled, n.cancelling, n.acking = slices.Clone(m.pending), slices.Clone(m.cancelled), slices.Clone(m.cancelling), slices.Clone(m.acking)
	return &n
}

// state writes what makes a difference for what can happen later: two worlds
// with the same text are the same to a search. Numbers of connections
// are given by their distance from the present one; times are left out.
func (w *world) state() string {
	b := make([]byte, 0, 512)
	num := func(xs ...uint64) { b = appendNums(b, xs...) }
	flag := func(xs ...bool) { b = appendFlags(b, xs...) }
	list := func(ids []uint64) { b = appendList(b, ids) }
	l := w.left
	num(uint64(l.sends), uint64(l.recvs), uint64(l.breaks), uint64(l.cancels), uint64(l.restarts), uint64(l.blackouts))
	num(w.process, uint64(w.hellos), uint64(len(w.downs)))
	flag(w.upAt[w.conn])
	for _, k := range w.keys {
		num(uint64(len(k.values)))
		b = append(b, k.values...)
		num(uint64(len(k.waiting)))
		for _, f := range k.waiting {
			num(f.request.ID)
		}
	}
	num(uint64(len(w.reports)))
	for _, r := range w.reports {
		num(r.request.ID, uint64(r.value))
		e := w.s.known(simulated).entryOf(r.request.ID)
		flag(e != nil && e.fetch == r.fetch)
	}
	for i := range w.calls {
		c := &w.calls[i]
		num(c.attempt.ID, uint64(c.attempt.Attempt), min(w.conn-c.conn, 2), uint64(c.state), uint64(c.value), c.attempt.Peer)
		flag(c.lost, c.dropped, c.detached, c.response.Err != nil)
		list(c.attempt.Acks)
		list(c.attempt.Cancels)
		_, here := w.callsHere[c.call]
		flag(here)
	}
	num(uint64(len(w.batches)))
	for _, m := range w.batches {
		num(uint64(m.act.kind), min(w.conn-m.conn, 2), min(w.r.generation-m.act.generation, 2))
		flag(m.taken, m.done, m.lost)
		list(m.act.ids)
	}
	for _, r := range w.recvs {
		num(uint64(r.key), uint64(r.value), r.first)
		flag(r.ended != 0, r.cancelled)
		for _, o := range w.recvs { // what is compared for the order
			flag(o.ended != 0 && o.ended < r.begun)
		}
	}
	for v := 1; v <= w.sends; v++ {
		num(uint64(w.refs[v]), uint64(w.got[v]+1), w.home[v])
	}
	b = appendResponses(b, w.s, w.nameOf)
	b = appendRequests(b, w.r)
	return string(b)
}

func (k *requester) entryOf(id uint64) *entry {
	if k == nil {
		return nil
	}
	return k.entries[id]
}

// appendNums and the like write parts of a state.
func appendNums(b []byte, xs ...uint64) []byte {
	for _, x := range xs {
		b = binary.AppendUvarint(b, x)
	}
	return b
}

func appendFlags(b []byte, xs ...bool) []byte {
	for _, x := range xs {
		if x {
			b = append(b, 1)
		} else {
			b = append(b, 0)
		}
	}
	return b
}

func appendList(b []byte, ids []uint64) []byte {
	return appendNums(appendNums(b, uint64(len(ids))), ids...)
}

// forgetAll forgets the ids of an requester.
func (t *responses) forgetAll(k *requester) {
	if len(k.past.ends) > 0 {
		t.forgetOld(k.past.order[len(k.past.order)-1].at.Add(rememberFor), k)
	}
}

// appendResponses writes what a table holds. name numbers its values.
func appendResponses(b []byte, t *responses, name func(rendezvous.Value) byte) []byte {
	num := func(xs ...uint64) { b = appendNums(b, xs...) }
	flag := func(xs ...bool) { b = appendFlags(b, xs...) }
	num(uint64(len(t.requesters)))
	for _, who := range slices.Sorted(maps.Keys(t.requesters)) {
		k := t.requesters[who]
		num(k.incarnation, k.newcomer, uint64(k.conns), uint64(k.calls), uint64(k.limited.Len()), uint64(len(k.entries)))
		for _, id := range sortedKeys(k.entries) {
			e := k.entries[id]
			num(id, uint64(e.state), uint64(e.request.Attempt), uint64(len(e.calls)), uint64(e.size))
			flag(e.cancelled, e.ended)
			if e.state == entryKept && e.response.Err == nil {
				num(uint64(name(e.response.Value)))
			}
		}
		for at := k.limited.Front(); at != nil; at = at.Next() {
			num(item[*entry](at).request.ID)
		}
		flag(k.newcomer != 0 && k.connects != k.connectsAt)
		b = appendList(b, k.displaced)
		num(uint64(len(k.past.ends)))
		for _, id := range sortedKeys(k.past.ends) {
			num(id, uint64(k.past.ends[id]), k.past.lost[id].hash)
		}
		for _, hash := range sortedKeys(k.past.owed) {
			b = appendList(b, k.past.owed[hash])
		}
		if len(k.past.lost) == 0 {
			continue
		}
		for _, step := range t.steps { // whose turn it is to report a loss
			for e := step.first; e != nil; e = e.after {
				num(e.request.ID)
			}
		}
	}
	return b
}

// sortedKeys are the keys of a map in order.
func sortedKeys[V any](m map[uint64]V) []uint64 {
	return slices.Sorted(maps.Keys(m))
}

func appendRequests(b []byte, r *requests) []byte {
	num := func(xs ...uint64) { b = appendNums(b, xs...) }
	flag := func(xs ...bool) { b = appendFlags(b, xs...) }
	list := func(ids []uint64) { b = appendList(b, ids) }
	num(uint64(r.conn), r.incarnation, uint64(r.resent))
	flag(r.probing, r.flushing, !r.wakeAt.IsZero())
	for _, id := range sortedKeys(r.transfers) {
		x := r.transfers[id]
		num(id, uint64(x.Attempt), min(r.generation-x.generation, 2), x.Peer)
		flag(x.sent, x.Fallback, x.reached, x.meant == r.incarnation)
		list(x.Acks)
	}
	for _, q := range [][]*Transfer{r.fresh, r.again} {
		num(uint64(len(q)))
		for _, x := range q {
			num(x.ID)
			flag(!x.over)
		}
	}
	list(r.pending)
	list(r.cancelled)
	list(r.cancelling)
	return b
}

func cloneOwed(m map[uint64][]uint64) map[uint64][]uint64 {
	c := make(map[uint64][]uint64)
	for hash, ids := range m {
		c[hash] = slices.Clone(ids)
	}
	return c
}
