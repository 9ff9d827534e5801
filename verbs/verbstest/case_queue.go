package verbstest

import (
	"slices"
	"sync/atomic"

	"github.com/tryst-rdma/tryst/verbs"
)

func queueCases() []testCase {
	return []testCase{
		{name: "SelectiveSignalling", run: selectiveSignalling},
		{name: "UnsignaledSlotsAreFreed", run: unsignaledSlots},
		{name: "SendQueueFull", run: sendQueueFull},
		{name: "SendQueueFullInABatch", run: sendQueueFullBatch},
		{name: "ReceiveQueueFull", run: recvQueueFull},
		{name: "BatchStopsAtInvalid", run: batchStopsAtInvalid},
		{name: "PollInBatches", run: pollInBatches},
		{name: "TwoQueuePairsOnOneCQ", run: twoOnOne},
		{name: "NoOverrun", run: noOverrun},
		{name: "SeparateQueues", run: separateQueues},
		{name: "PostSendAndPoll", run: postSendAndPoll},
		{name: "ConcurrentPosters", run: concurrentPosters},
		{name: "SizeIsAtLeastTheRequest", run: cqSize},
	}
}

// selectiveSignalling: only signaled requests complete (ibv_post_send(3),
// IBV_SEND_SIGNALED).
func selectiveSignalling(w *world) {
	a, b := w.pair()
	var wrs []verbs.SendWR
	for i := range 40 {
		wr := a.to(b, verbs.WRID(i), verbs.OpWrite, i*64, 64, i*64)
		wr.Signaled = i%8 == 7
		wrs = append(wrs, wr)
	}
	pattern(a.mem[:40*64], 1)
	a.post(wrs...)
	for i := 7; i < 40; i += 8 {
		a.expect(verbs.WRID(i), verbs.StatusOK)
	}
	a.noCompletion()
	w.memoryIs(b.mem, 0, a.mem[:40*64], 0)
}

// unsignaledSlots: polling a completion frees the slots of all requests before it
// (specification, volume 1, 10.8.5.1).
func unsignaledSlots(w *world) {
	a, b := w.pair(func(s *params) { s.sends = 16 })
	for round := range 50 {
		for i := range 8 {
			wr := a.to(b, verbs.WRID(round), verbs.OpWrite, 0, 8, 0)
			wr.Signaled = i == 7
			a.post(wr)
		}
		a.expect(verbs.WRID(round), verbs.StatusOK)
	}
	a.noCompletion()
}

// blockedPair returns a pair whose sends wait for receives of the peer without limit.
func (w *world) blockedPair(change ...func(*params)) (a, b *end) {
	w.Helper()
	return w.pair(append(change, func(s *params) {
		s.rnrRetry = 7         // unlimited: specification, volume 1, 9.7.5.2.8
		s.cqSize = 4 * 64 * 64 // a device may create longer queues than requested
		s.recvs = 128
	})...)
}

// sendQueueFull: ErrQueueFull, and free slots again when the posted requests have completed.
func sendQueueFull(w *world) {
	a, b := w.blockedPair(func(s *params) { s.sends = 16 })
	posted := 0
	for ; posted < 16*64; posted++ {
		n, err := a.qp.PostSend([]verbs.SendWR{a.send(verbs.WRID(posted), 0, 8)})
		if err != nil {
			w.errorIs(err, verbs.ErrQueueFull)
			if n != 0 {
				w.Errorf("%d of 1 posted, and %v", n, err)
			}
			break
		}
	}
	if posted < 16 || posted == 16*64 {
		w.Fatalf("a send queue of 16 accepts %d", posted)
	}
	a.drains(b, posted)
	a.post(a.send(9999, 0, 8))
	b.recv(1, 0, 8)
	a.expect(9999, verbs.StatusOK)
}

// drains posts the receives that the sends of a blockedPair wait for.
func (e *end) drains(peer *end, posted int) {
	e.w.Helper()
	for i := range posted {
		peer.recv(1, 0, 8)
		peer.expect(1, verbs.StatusOK)
		e.expect(verbs.WRID(i), verbs.StatusOK)
	}
	e.noCompletion()
}

func sendQueueFullBatch(w *world) {
	a, b := w.blockedPair(func(s *params) { s.sends = 16 })
	var wrs []verbs.SendWR
	for i := range 16 * 64 {
		wrs = append(wrs, a.send(verbs.WRID(i), 0, 8))
	}
	posted, err := a.qp.PostSend(wrs[:5])
	if posted != 5 || err != nil {
		w.Fatalf("%d of 5 posted: %v", posted, err)
	}
	n, err := a.qp.PostSend(wrs[5:])
	w.errorIs(err, verbs.ErrQueueFull)
	if posted += n; posted < 16 || posted == len(wrs) {
		w.Fatalf("a send queue of 16 accepts %d", posted)
	}
	a.drains(b, posted)
}

func recvQueueFull(w *world) {
	a, b := w.pair(func(s *params) { s.recvs, s.cqSize = 16, 64*64 })
	var wrs []verbs.RecvWR
	for i := range 16 * 64 {
		wrs = append(wrs, verbs.RecvWR{ID: verbs.WRID(i), SGL: []verbs.SGE{b.sge(0, 8)}})
	}
	posted, err := b.qp.PostRecv(wrs)
	w.errorIs(err, verbs.ErrQueueFull)
	if posted < 16 || posted == len(wrs) {
		w.Fatalf("a receive queue of 16 accepts %d", posted)
	}
	for i := range posted {
		a.post(a.send(1, 0, 8))
		a.expect(1, verbs.StatusOK)
		b.expect(verbs.WRID(i), verbs.StatusOK)
	}
	b.recv(4711, 0, 8)
	a.post(a.send(1, 0, 8))
	b.expect(4711, verbs.StatusOK)
}

// batchStopsAtInvalid: the requests before an invalid one are posted, those after it are not
// (ibv_post_send(3), bad_wr).
func batchStopsAtInvalid(w *world) {
	a, b := w.pair()
	wrong := a.send(2, 0, 8)
	wrong.SGL = slices.Repeat(wrong.SGL, a.n.dev.Info().Limits.SGEs+1)
	for range 3 {
		b.recv(7, 0, 8)
	}
	n, err := a.qp.PostSend([]verbs.SendWR{a.send(0, 0, 8), a.send(1, 0, 8), wrong, a.send(3, 0, 8)})
	w.errorIs(err, verbs.ErrInvalid)
	if n != 2 {
		w.Errorf("%d were accepted, want 2", n)
	}
	a.expect(0, verbs.StatusOK)
	a.expect(1, verbs.StatusOK)
	a.noCompletion()
	long := verbs.RecvWR{SGL: slices.Repeat([]verbs.SGE{b.sge(0, 1)}, a.n.dev.Info().Limits.SGEs+1)}
	n, err = b.qp.PostRecv([]verbs.RecvWR{{ID: 8, SGL: []verbs.SGE{b.sge(0, 8)}}, long, {ID: 9}})
	w.errorIs(err, verbs.ErrInvalid)
	if n != 1 {
		w.Errorf("%d receives were accepted, want 1", n)
	}
	b.expect(7, verbs.StatusOK)
	b.expect(7, verbs.StatusOK)
	b.noCompletion()
}

// pollInBatches: Poll returns at most len(wcs) completions, oldest first (ibv_poll_cq(3)).
func pollInBatches(w *world) {
	a, b := w.pair()
	var wrs []verbs.SendWR
	for i := range 50 {
		wrs = append(wrs, a.to(b, verbs.WRID(i), verbs.OpWrite, 0, 8, 0))
	}
	a.post(wrs...)
	if n, err := a.cq.Poll(nil); n != 0 || err != nil {
		w.Errorf("Poll(nil): %d, %v", n, err)
	}
	wcs, got := make([]verbs.WC, 7), 0
	if !w.eventually(soon, func() bool {
		n, err := a.cq.Poll(wcs)
		if err != nil {
			w.Fatal(err)
		}
		if n > len(wcs) {
			w.Fatalf("%d completions in a batch of %d", n, len(wcs))
		}
		for _, wc := range wcs[:n] {
			if wc.ID != verbs.WRID(got) || wc.Status != verbs.StatusOK {
				w.Fatalf("completion %d is %+v", got, wc)
			}
			got++
		}
		return got == len(wrs)
	}) {
		w.Fatalf("%d of %d completions occurred", got, len(wrs))
	}
	a.noCompletion()
}

// twoOnOne: one queue delivers the completions of several queue pairs, those of each in
// order.
func twoOnOne(w *world) {
	s := w.params(func(s *params) { s.cqSize = 256 })
	a1, b1 := w.end(w.nodes[0], s), w.end(w.nodes[1], s)
	s.cq, s.of = a1.cq, a1
	a2 := w.end(w.nodes[0], s)
	s.cq, s.of = b1.cq, b1
	b2 := w.end(w.nodes[1], s)
	w.join(a1, b1)
	w.join(a2, b2)
	const n = 20
	for i := range n {
		a1.post(a1.to(b1, verbs.WRID(i), verbs.OpWrite, 0, 8, 0))
		a2.post(a2.to(b2, verbs.WRID(1000+i), verbs.OpWrite, 8, 8, 8))
	}
	one, two := 0, 1000
	for range 2 * n {
		wc := a1.next()
		want, qpn := &one, a1.qp.QPN()
		if wc.ID >= 1000 {
			want, qpn = &two, a2.qp.QPN()
		}
		if wc.ID != verbs.WRID(*want) || wc.Status != verbs.StatusOK || wc.QPN != qpn {
			w.Fatalf("the completion is %+v, want id %d of QP %v", wc, *want, qpn)
		}
		*want++
	}
	// If one breaks, the other one continues.
	w.noError(a1.qp.ToErr())
	a2.post(a2.to(b2, 5, verbs.OpWrite, 8, 8, 8))
	a1.expect(5, verbs.StatusOK)
}

// noOverrun: a queue of the size of all work requests that can be posted does not overrun
// when all of them are flushed.
func noOverrun(w *world) {
	const each = 32
	s := w.params(func(s *params) { s.sends, s.recvs, s.cqSize, s.rnrRetry = each, each, 4*each, 7 })
	a1, b1 := w.end(w.nodes[0], s), w.end(w.nodes[1], s)
	s.cq, s.of = a1.cq, a1
	a2 := w.end(w.nodes[0], s)
	s.cq, s.of = b1.cq, b1
	b2 := w.end(w.nodes[1], s)
	w.join(a1, b1)
	w.join(a2, b2)
	for i := range each {
		for _, e := range []*end{a1, a2} {
			e.recv(verbs.WRID(i), 0, 8)
			wr := e.send(verbs.WRID(i), 0, 8)
			wr.Signaled = i%2 == 0
			e.post(wr)
		}
	}
	w.noError(a1.qp.ToErr())
	w.noError(a2.qp.ToErr())
	pause(w.scaled(quiet)) // without polling
	for range 4 * each {
		if wc := a1.next(); wc.Status != verbs.StatusFlushed {
			w.Fatalf("the completion is %+v (%v)", wc, wc.Status)
		}
	}
	a1.noCompletion()
}

func separateQueues(w *world) {
	s := w.params()
	a, b := w.end(w.nodes[0], s), w.end(w.nodes[1], s)
	recvCQ, err := b.n.dev.CreateCQ(verbs.CQConfig{Size: 16})
	if err != nil {
		w.Fatal(err)
	}
	w.closeAtEnd(recvCQ)
	w.noError(b.qp.Close())
	b.qp, err = b.pd.CreateQP(verbs.QPConfig{SendCQ: b.cq, RecvCQ: recvCQ, MaxSend: 8, MaxRecv: 8, MaxSendSGE: 1, MaxRecvSGE: 1})
	if err != nil {
		w.Fatal(err)
	}
	w.closeAtEnd(b.qp)
	w.join(a, b)
	b.recv(1, 0, 8)
	a.post(a.send(2, 0, 8))
	a.expect(2, verbs.StatusOK)
	b.noCompletion()
	b.cq = recvCQ
	b.expect(1, verbs.StatusOK)
}

// postSendAndPoll: both counts are correct, also if the post fails.
func postSendAndPoll(w *world) {
	a, b := w.pair()
	wcs := make([]verbs.WC, 8)
	got := 0
	const n = 100
	for i := range n {
		posted, polled, err := a.qp.PostSendAndPoll([]verbs.SendWR{a.to(b, verbs.WRID(i), verbs.OpWrite, 0, 64, 0)}, a.cq, wcs)
		if posted != 1 || err != nil {
			w.Fatalf("%d of 1 posted: %v", posted, err)
		}
		a.polled = append(a.polled, wcs[:polled]...)
		for len(a.polled) > 0 || i-got > 32 { // bounded by the slots of the send queue
			a.expect(verbs.WRID(got), verbs.StatusOK)
			got++
		}
	}
	for ; got < n; got++ {
		a.expect(verbs.WRID(got), verbs.StatusOK)
	}
	posted, polled, err := a.qp.PostSendAndPoll(nil, a.cq, wcs)
	if posted != 0 || polled != 0 || err != nil {
		w.Errorf("without requests and completions: %d, %d, %v", posted, polled, err)
	}

	// The invalid request is rejected, and completions are polled nevertheless.
	a.post(a.to(b, 7, verbs.OpWrite, 0, 64, 0))
	wrong := a.send(2, 0, 8)
	wrong.SGL = slices.Repeat(wrong.SGL, a.n.dev.Info().Limits.SGEs+1)
	total := 0
	if !w.eventually(soon, func() bool {
		posted, polled, err := a.qp.PostSendAndPoll([]verbs.SendWR{wrong}, a.cq, wcs)
		w.errorIs(err, verbs.ErrInvalid)
		if posted != 0 {
			w.Errorf("%d invalid requests posted", posted)
		}
		total += polled
		return total > 0
	}) {
		w.Error("no completion is polled when the post fails")
	}
	if wcs[0].ID != 7 {
		w.Errorf("polled %+v", wcs[0])
	}
}

// concurrentPosters: several goroutines may post at once.
func concurrentPosters(w *world) {
	a, b := w.pair(func(s *params) { s.sends, s.recvs = 128, 128 })
	const posters, each = 4, 25
	for i := range posters * each {
		b.recv(verbs.WRID(i), 4096+64*i, 64)
	}
	var failed atomic.Bool
	for p := range posters {
		w.background(func() {
			for i := range each {
				n, err := a.qp.PostSend([]verbs.SendWR{a.send(verbs.WRID(p*each+i), 64*(p*each+i), 64)})
				if n != 1 || err != nil {
					w.Errorf("poster %d: %d posted, %v", p, n, err)
					failed.Store(true)
					return
				}
			}
		})
	}
	next := [posters]int{}
	for range posters * each {
		if failed.Load() {
			return
		}
		wc := a.next()
		p := int(wc.ID) / each
		if wc.Status != verbs.StatusOK || p >= posters || int(wc.ID) != p*each+next[p] {
			w.Fatalf("the completion is %+v; completions per poster so far: %v", wc, next)
		}
		next[p]++
	}
	for i := range posters * each {
		b.expect(verbs.WRID(i), verbs.StatusOK)
	}
	a.noCompletion()
}

func cqSize(w *world) {
	for _, size := range []int{1, 3, 100, 1000} {
		c, err := w.nodes[0].dev.CreateCQ(verbs.CQConfig{Size: size})
		if err != nil {
			w.Fatal(err)
		}
		if c.Size() < size {
			w.Errorf("requested size %d, got %d", size, c.Size())
		}
		w.noError(c.Close())
	}
	for _, size := range []int{0, -1, w.nodes[0].dev.Info().Limits.CQEntries + 1} {
		if c, err := w.nodes[0].dev.CreateCQ(verbs.CQConfig{Size: size}); err == nil {
			w.Errorf("CreateCQ accepts size %d", size)
			w.noError(c.Close())
		}
	}
}
