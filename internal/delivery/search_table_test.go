package delivery

import (
	"slices"

	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/transport"
)

// The sender's shell: Kept and the rendezvous.

func (w *duo) keep(i int, acts []responseAction) {
	s := &w.sides[i]
	var found []report // at once
	for _, a := range acts {
		switch a.kind {
		case doFetch:
			if w.onTheWay(i) && !w.cfg.rules.matchEarly {
				s.waiting = append(s.waiting, waiting{a.fetch, a.request})
			} else if v := w.fetch(i, waiting{a.fetch, a.request}); v != 0 {
				found = append(found, report{waiting: waiting{a.fetch, a.request}, value: v})
			}
		case doStopFetch:
			w.stopFetch(i, a.fetch)
		case doReply:
			w.reply(i, a)
		case doRestore:
			if name := w.nameOf(a.response.Value); w.cfg.backs {
				s.backs = append(s.backs, name)
			} else {
				w.back(i, name)
			}
		case doRelease:
			name := w.nameOf(a.response.Value)
			w.outcome(name, a.response.Err)
			w.release(name)
		}
	}
	for _, rep := range found {
		w.keep(i, s.table.fetched(w.now, rep.request, rep.fetch, transport.Response{Value: rendezvous.Value{Tensor: w.cfg.tensor[rep.value]}}))
	}
	if w.cfg.rules.forgetIDs {
		for _, k := range s.table.requesters {
			s.table.forgetAll(k)
			k.displaced = nil
		}
	}
}

// back is Source.Restore.
func (w *duo) back(i int, name byte) {
	if s := &w.sides[i]; s.over || w.value(name).home != s.process {
		w.outcome(name, errLost)
		w.release(name)
	} else {
		w.put(i, name, true)
	}
}

// onTheWay reports whether something of the requester is on the way back: ResponseCache.order.
func (w *duo) onTheWay(i int) bool {
	s := &w.sides[i]
	return w.cfg.backs && (len(s.backs) > 0 || slices.ContainsFunc(s.reports, func(r report) bool { return r.stopped }))
}

// due begins the receives that have waited for what was on the way back.
func (w *duo) due(i int) {
	s := &w.sides[i]
	for len(s.waiting) > 0 && !w.onTheWay(i) {
		f := s.waiting[0]
		s.waiting = slices.Clone(s.waiting[1:])
		w.keep(i, []responseAction{{kind: doFetch, fetch: f.fetch, request: f.request}})
	}
}

// stopFetch takes a receive of the rendezvous back. It ends later, perhaps with a value.
func (w *duo) stopFetch(i int, fetch uint64) {
	s := &w.sides[i]
	is := func(x waiting) bool { return x.fetch == fetch }
	take := func(all *[]waiting) {
		if n := slices.IndexFunc(*all, is); n >= 0 {
			s.reports = append(s.reports, report{waiting: (*all)[n]})
			*all = slices.Delete(slices.Clone(*all), n, n+1)
		}
	}
	for k := range s.keys {
		take(&s.keys[k].waiting)
	}
	take(&s.waiting)
	for n := range s.reports {
		if is(s.reports[n].waiting) {
			s.reports[n].stopped = true
		}
	}
}

// outcome is what the sender of a value learns of it (rendezvous.Delivery): nil when the
// receiver has it.
func (w *duo) outcome(name byte, err error) {
	v := w.value(name)
	if w.cfg.rules.sentReply && err == nil && v.told > 0 {
		return // it was told before
	}
	if v.told++; v.told > 1 {
		w.fail("the sender of value %d learns %d outcomes", name, v.told)
	}
	switch {
	case err == nil && v.got == 0 && !w.cfg.rules.keepNone:
		w.fail("the sender of value %d learns that it was received, and it was not", name)
	case err != nil && w.cfg.aborts+w.cfg.restarts+w.cfg.reborn+w.cfg.forged+w.cfg.drops+w.cfg.dies == 0:
		w.fail("the sender of value %d learns %v, and nothing ended", name, err)
	}
}

// fetch is Source.RecvLocalAsync. It returns the value that it finds at once, 0 for none.
func (w *duo) fetch(i int, f waiting) (value byte) {
	s := &w.sides[i]
	q := &s.keys[slices.Index(w.cfg.parsed[i], f.request.Key)]
	switch {
	case s.over:
		s.reports = append(s.reports, report{waiting: f})
	case len(q.values) > 0:
		value, q.values = q.values[0], q.values[1:]
		if w.cfg.slow {
			s.reports, value = append(s.reports, report{waiting: f, value: value}), 0
		}
	default:
		q.waiting = append(slices.Clone(q.waiting), f)
	}
	return value
}

// put gives a value to the first receive of its key, or queues it.
func (w *duo) put(i int, name byte, front bool) {
	s := &w.sides[i]
	q := &s.keys[w.value(name).key]
	switch {
	case len(q.waiting) > 0:
		s.reports = append(s.reports, report{waiting: q.waiting[0], value: name})
		q.waiting = q.waiting[1:]
	case front: // in its place: names rise as values are sent
		at, _ := slices.BinarySearch(q.values, name)
		q.values = slices.Insert(slices.Clone(q.values), at, name)
	default:
		q.values = append(slices.Clone(q.values), name)
	}
}

// report reports to the table how a receive of the rendezvous has ended.
func (w *duo) report(i, n int) {
	s := &w.sides[i]
	rep := s.reports[n]
	s.reports = slices.Delete(s.reports, n, n+1)
	ans := transport.Response{Err: status.New(status.Cancelled, "")}
	switch {
	case rep.value == 0 && s.over:
		ans.Err = status.New(status.Aborted, "Cleanup 1")
	case rep.value != 0:
		ans = transport.Response{Value: rendezvous.Value{Tensor: w.cfg.tensor[rep.value]}}
		k := s.table.known(rep.request.Requester)
		if e := k.entryOf(rep.request.ID); w.cfg.rules.dropValue && e != nil && e.state == entryStopping {
			w.release(rep.value)
			ans = transport.Response{Err: status.New(status.Cancelled, "")}
		}
	}
	w.keep(i, s.table.fetched(w.now, rep.request, rep.fetch, ans))
	w.due(i)
}

// asks is ResponseCache.Request.
func (w *duo) asks(i int, a transport.Request, generation int) callID {
	s := &w.sides[i]
	if r := &w.sides[1-i].recvs[a.ID-1]; r.first == 0 {
		r.first = s.process
	}
	s.lastCall++
	s.callers = append(s.callers, duoCaller{s.lastCall, generation, a.ID, a.Attempt})
	a.ID = w.idAt(a, generation)
	if e := s.table.known(a.Requester).entryOf(a.ID); w.cfg.rules.anyAttempt && e != nil {
		e.request.Attempt = a.Attempt - 1
	}
	call := s.lastCall
	w.keep(i, s.table.request(w.now, a, call))
	return call
}

// idAt is the id that the table finds a receive by.
func (w *duo) idAt(a transport.Request, generation int) uint64 {
	switch {
	case w.cfg.rules.newID:
		return a.ID + uint64(a.Attempt-1)<<32
	case w.cfg.rules.ownTable && generation == 0:
		return a.ID + 1<<32
	}
	return a.ID
}

func (w *duo) finish(i int, requester transport.Process, ids []uint64, grpc bool) {
	if w.cfg.rules.ownTable && grpc {
		ids = slices.Clone(ids)
		for k := range ids {
			ids = append(ids, ids[k]+1<<32)
		}
	}
	w.keep(i, w.sides[i].table.ack(w.now, requester, ids))
}

// cancel is ResponseCache.Cancel.
func (w *duo) cancel(i int, requester uint64, ids []uint64) {
	if len(ids) == 0 {
		return
	}
	if w.cfg.rules.cancelLate {
		w.sides[i].cancelled = append(w.sides[i].cancelled, duoIDs{requester, ids})
		return
	}
	w.cancelNow(i, duoIDs{requester, ids})
}

// cancelNow has the table cancel, and waits for the local receives that this ends.
func (w *duo) cancelNow(i int, c duoIDs) {
	s := &w.sides[i]
	shown := w.hideLosses(i, c)
	acts, err := s.table.cancel(w.now, transport.Process{Name: w.requester(1 - i).Name, Incarnation: c.requester}, c.ids)
	shown()
	if err != nil && c.requester == w.sides[1-i].process {
		w.fail("%s refuses a cancel: %v", duoNames[i], err)
	}
	var stopped []uint64
	for _, a := range acts {
		if a.kind == doStopFetch {
			stopped = append(stopped, a.fetch)
		}
	}
	w.keep(i, acts)
	if w.cfg.backs {
		return // order.go holds the requests up that come before all is back
	}
	for _, id := range stopped {
		if n := slices.IndexFunc(s.reports, func(r report) bool { return r.fetch == id }); n >= 0 {
			w.report(i, n)
		}
	}
}

// hideLosses switches rules off for a cancel. It returns what switches them on again.
func (w *duo) hideLosses(i int, c duoIDs) (shown func()) {
	var hidden []*entry
	k := w.sides[i].table.known(transport.Process{Name: w.requester(1 - i).Name, Incarnation: c.requester})
	if k != nil && w.cfg.rules.tellNobody {
		for _, id := range c.ids {
			k.past.reported(id)
		}
	}
	if k != nil && w.cfg.rules.tellLater {
		for id, e := range k.entries {
			if !e.cancelled && !slices.Contains(c.ids, id) {
				hidden = append(hidden, e)
				e.cancelled = true
			}
		}
	}
	return func() {
		for _, e := range hidden {
			e.cancelled = false
		}
	}
}

// drops has a full cache drop what it keeps for the other side, which has no connection.
func (w *duo) drops(i int) {
	acts := w.sides[i].table.expire(w.now, w.unreachable(i))
	for _, a := range acts {
		w.value(w.nameOf(a.response.Value)).dropped = true
	}
	w.keep(i, acts)
}

// unreachable is the requester of a side that has no connection and for which a value is kept; nil
// when there is none.
func (w *duo) unreachable(i int) *requester {
	table := w.sides[i].table
	k := table.known(w.requester(1 - i))
	if k == nil || k.in != &table.lost {
		return nil
	}
	for _, e := range k.entries {
		if e.state == entryKept && e.response.Err == nil {
			return k
		}
	}
	return nil
}

// reply gives a caller its answer.
func (w *duo) reply(i int, a responseAction) {
	s := &w.sides[i]
	n := slices.IndexFunc(s.callers, func(c duoCaller) bool { return c.call == callOf(&a) })
	if n < 0 {
		w.fail("%s answers call %d twice", duoNames[i], callOf(&a))
		return
	}
	c := s.callers[n]
	s.callers = slices.Delete(slices.Clone(s.callers), n, n+1)
	var name byte
	if a.response.Err == nil {
		name = w.nameOf(a.response.Value)
		w.value(name).refs++
		if w.cfg.rules.sentReply {
			w.outcome(name, nil)
		}
	}
	if c.generation != 0 && name != 0 && w.cfg.copies {
		s.copied = append(s.copied, duoAnswered{c, name})
	} else if c.generation != 0 {
		w.answered(i, c, name, a.response.Err)
	} else {
		w.answerCall(i, callOf(&a), name, a.response.Err)
	}
	if w.cfg.rules.keepNone {
		w.finish(i, w.requester(1-i), []uint64{c.id}, false)
	}
}

// detach is Call.Detach.
func (w *duo) detach(i int, call callID) {
	s := &w.sides[i]
	n := slices.IndexFunc(s.callers, func(c duoCaller) bool { return c.call == call })
	if n < 0 {
		return // answered
	}
	s.callers = slices.Delete(slices.Clone(s.callers), n, n+1)
	w.keep(i, s.table.detachID(w.now, call))
}
