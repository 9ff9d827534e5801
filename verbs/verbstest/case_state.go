package verbstest

import (
	"github.com/tryst-rdma/tryst/verbs"
)

func stateCases() []testCase {
	return []testCase{
		{name: "Connect", run: connectPair},
		{name: "ConnectToItself", needs: []Feature{SelfConnect}, run: connectToItself},
		{name: "WrongTransitions", run: wrongTransitions},
		{name: "WrongAttributes", run: wrongAttributes},
		{name: "Reset", run: resetAndReuse},
		{name: "PostsInEachState", run: postsInEachState},
		{name: "ReceiverInRTR", run: receiverInRTR},
	}
}

// stateIs checks the state of the queue pair.
func (e *end) stateIs(want verbs.QPState) {
	e.w.Helper()
	if s, err := e.qp.State(); err != nil || s != want {
		e.w.Errorf("the queue pair is in %v (%v), want %v", s, err, want)
	}
}

// connectPair: InfiniBand specification, volume 1, 10.3.1; ibv_modify_qp(3).
func connectPair(w *world) {
	s := w.params()
	a, b := w.end(w.nodes[0], s), w.end(w.nodes[1], s)
	if a.qp.QPN() < 2 || a.qp.QPN() > 0xffffff || a.n == b.n && a.qp.QPN() == b.qp.QPN() {
		w.Errorf("the queue pairs have numbers %v and %v", a.qp.QPN(), b.qp.QPN())
	}
	if a.qp.Endpoint().QPN != a.qp.QPN() {
		w.Errorf("QPN %v, but the endpoint has %v", a.qp.QPN(), a.qp.Endpoint().QPN)
	}
	a.stateIs(verbs.StateReset)
	a.init()
	b.init()
	a.stateIs(verbs.StateInit)
	p, q := a.path(b), b.path(a)
	for _, e := range []struct {
		from, to *end
		path     verbs.Path
	}{{a, b, p}, {b, a, q}} {
		err := e.from.qp.ToRTR(verbs.RTRAttr{
			Peer: e.to.endpoint(), MTU: e.path.MTU, SGIDIndex: e.path.SGIDIndex, TrafficClass: e.path.TrafficClass,
			ServiceLevel: e.path.ServiceLevel, MaxDestReadAtomic: e.path.ReadAtomic, MinRNRTimer: e.path.MinRNRTimer,
		})
		if err != nil {
			w.Fatal(err)
		}
		e.from.stateIs(verbs.StateRTR)
		err = e.from.qp.ToRTS(verbs.RTSAttr{
			PSN: e.from.psn, Timeout: e.path.Timeout, Retry: e.path.Retry, RNRRetry: e.path.RNRRetry, MaxReadAtomic: e.path.ReadAtomic,
		})
		if err != nil {
			w.Fatal(err)
		}
		e.from.stateIs(verbs.StateRTS)
	}
	a.sendsTo(b)
	b.sendsTo(a)
	w.noError(a.qp.ToErr())
	a.stateIs(verbs.StateErr)
}

// sendsTo sends one message and checks that it arrives.
func (e *end) sendsTo(to *end) {
	e.w.Helper()
	pattern(e.mem[:100], byte(e.psn))
	clear(to.mem[200:400])
	to.recv(71, 200, 128)
	e.post(e.send(72, 0, 100))
	if e == to {
		got := map[verbs.WRID]verbs.WC{}
		for range 2 {
			wc := e.next()
			got[wc.ID] = wc
		}
		if got[71].Status != verbs.StatusOK || got[72].Status != verbs.StatusOK || len(got) != 2 || got[71].Len != 100 {
			e.w.Fatalf("the completions are %+v", got)
		}
	} else {
		e.expect(72, verbs.StatusOK)
		if wc := to.expect(71, verbs.StatusOK); wc.Len != 100 || wc.Op != verbs.WCRecv || wc.HasImm || wc.QPN != to.qp.QPN() {
			e.w.Errorf("received %+v on QP %v", wc, to.qp.QPN())
		}
	}
	e.w.memoryIs(to.mem[200:400], 0, e.mem[:100], 0)
}

func connectToItself(w *world) {
	e := w.end(w.nodes[0], w.params())
	e.init()
	e.connect(e)
	e.sendsTo(e)
}

// wrongTransitions: the provider rejects each transition that verbs.CheckTransition rejects,
// with an error that names the states, and keeps its state.
func wrongTransitions(w *world) {
	s := w.params()
	for _, from := range []verbs.QPState{verbs.StateReset, verbs.StateInit, verbs.StateRTR, verbs.StateRTS, verbs.StateErr} {
		e, peer := w.end(w.nodes[0], s), w.end(w.nodes[1], s)
		e.moveTo(peer, from)
		path := e.path(peer)
		for _, try := range []struct {
			to   verbs.QPState
			call func() error
		}{
			{verbs.StateInit, func() error { return path.Init(e.qp) }},
			{verbs.StateRTR, func() error { return e.toRTR(peer) }},
			{verbs.StateRTS, func() error { return e.toRTS(peer) }},
		} {
			if verbs.CheckTransition(from, try.to) == nil {
				continue
			}
			err := try.call()
			w.errorIs(err, verbs.ErrInvalid)
			w.errorContains(err, try.to.String())
			if from != try.to {
				w.errorContains(err, from.String())
			}
			e.stateIs(from)
		}
	}
}

func (e *end) toRTR(peer *end) error {
	p := e.path(peer)
	return e.qp.ToRTR(verbs.RTRAttr{
		Peer: peer.endpoint(), MTU: p.MTU, SGIDIndex: p.SGIDIndex, TrafficClass: p.TrafficClass, ServiceLevel: p.ServiceLevel,
		MaxDestReadAtomic: p.ReadAtomic, MinRNRTimer: p.MinRNRTimer,
	})
}

func (e *end) toRTS(peer *end) error {
	p := e.path(peer)
	return e.qp.ToRTS(verbs.RTSAttr{PSN: e.psn, Timeout: p.Timeout, Retry: p.Retry, RNRRetry: p.RNRRetry, MaxReadAtomic: p.ReadAtomic})
}

// moveTo moves a queue pair in RESET to a state.
func (e *end) moveTo(peer *end, to verbs.QPState) {
	e.w.Helper()
	steps := []struct {
		to   verbs.QPState
		call func() error
	}{
		{verbs.StateInit, func() error { return e.path(peer).Init(e.qp) }},
		{verbs.StateRTR, func() error { return e.toRTR(peer) }},
		{verbs.StateRTS, func() error { return e.toRTS(peer) }},
		{verbs.StateErr, func() error { return e.qp.ToErr() }},
	}
	for _, s := range steps {
		if to == verbs.StateReset {
			return
		}
		if err := s.call(); err != nil {
			e.w.Fatal(err)
		}
		if s.to == to {
			return
		}
	}
}

// wrongAttributes: the provider rejects the attributes that RTRAttr.Check and RTSAttr.Check
// reject, and those that only the device can check.
func wrongAttributes(w *world) {
	s := w.params()
	e, peer := w.end(w.nodes[0], s), w.end(w.nodes[1], s)
	p := e.path(peer)
	for _, port := range []uint8{0, e.n.dev.Info().Ports + 1} {
		w.errorIs(e.qp.ToInit(verbs.InitAttr{Port: port, Access: allQP}), verbs.ErrInvalid)
	}
	e.stateIs(verbs.StateReset)
	e.init()
	good := verbs.RTRAttr{
		Peer: peer.endpoint(), MTU: p.MTU, SGIDIndex: p.SGIDIndex, MaxDestReadAtomic: p.ReadAtomic, MinRNRTimer: p.MinRNRTimer,
	}
	for name, change := range map[string]func(*verbs.RTRAttr){
		"MTU 1500":          func(a *verbs.RTRAttr) { a.MTU = 1500 },
		"peer's QPN 1":      func(a *verbs.RTRAttr) { a.Peer.QPN = 1 },
		"PSN of 25 bits":    func(a *verbs.RTRAttr) { a.Peer.PSN = 1 << 24 },
		"peer without GID":  func(a *verbs.RTRAttr) { a.Peer.GID, a.Peer.LID = verbs.GID{}, 0 },
		"RNR timer 32":      func(a *verbs.RTRAttr) { a.MinRNRTimer = 32 },
		"service level 16":  func(a *verbs.RTRAttr) { a.ServiceLevel = 16 },
		"GID index too far": func(a *verbs.RTRAttr) { a.SGIDIndex = 255 },
	} {
		a := good
		change(&a)
		if err := e.qp.ToRTR(a); err == nil {
			w.Fatalf("ToRTR accepts %s", name)
		}
		e.stateIs(verbs.StateInit)
	}
	if err := e.qp.ToRTR(good); err != nil {
		w.Fatal(err)
	}
	for _, a := range []verbs.RTSAttr{
		{PSN: 1 << 24, Timeout: 14, Retry: 6, RNRRetry: 6},
		{Timeout: 32, Retry: 6, RNRRetry: 6},
		{Timeout: 14, Retry: 8, RNRRetry: 6},
		{Timeout: 14, Retry: 6, RNRRetry: 8},
	} {
		w.errorIs(e.qp.ToRTS(a), verbs.ErrInvalid)
		e.stateIs(verbs.StateRTR)
	}
}

// resetAndReuse: ToReset discards all work requests without completions (specification,
// volume 1, 10.3.1.1), and the queue pair can be used again.
func resetAndReuse(w *world) {
	a, b := w.pair()
	a.sendsTo(b)
	b.recv(1, 0, 10)
	for _, e := range []*end{a, b} {
		w.noError(e.qp.ToErr())
	}
	b.expect(1, verbs.StatusFlushed)
	for _, e := range []*end{a, b} {
		w.noError(e.qp.ToReset())
		e.stateIs(verbs.StateReset)
		e.psn ^= 0x1234
	}
	w.join(a, b)
	a.sendsTo(b)
	b.sendsTo(a)
	a.noCompletion()
	b.noCompletion()
}

// postsInEachState: receives are accepted from INIT on, sends only in RTS and ERR
// (ibv_post_recv(3), ibv_post_send(3); specification, volume 1, 10.3.1).
func postsInEachState(w *world) {
	s := w.params()
	for _, from := range []verbs.QPState{verbs.StateReset, verbs.StateInit, verbs.StateRTR} {
		e, peer := w.end(w.nodes[0], s), w.end(w.nodes[1], s)
		e.moveTo(peer, from)
		n, err := e.qp.PostSend([]verbs.SendWR{e.send(1, 0, 8)})
		if n != 0 {
			w.Errorf("%d sends are accepted in %v", n, from)
		}
		w.errorIs(err, verbs.ErrInvalid)
		w.errorContains(err, from.String())
		n, err = e.qp.PostRecv([]verbs.RecvWR{{ID: 2, SGL: []verbs.SGE{e.sge(0, 8)}}})
		if from == verbs.StateReset {
			if n != 0 {
				w.Errorf("%d receives are accepted in %v", n, from)
			}
			w.errorIs(err, verbs.ErrInvalid)
			continue
		}
		if n != 1 || err != nil {
			w.Errorf("in %v %d of 1 receives are accepted: %v", from, n, err)
		}
		w.noError(e.qp.ToErr())
		e.expect(2, verbs.StatusFlushed)
	}
}

// receiverInRTR: a queue pair in RTR receives messages (specification, volume 1, 10.3.1.3).
func receiverInRTR(w *world) {
	s := w.params()
	a, b := w.end(w.nodes[0], s), w.end(w.nodes[1], s)
	a.init()
	b.init()
	if err := b.toRTR(a); err != nil {
		w.Fatal(err)
	}
	a.connect(b)
	a.sendsTo(b)
	if err := b.toRTS(a); err != nil {
		w.Fatal(err)
	}
	b.sendsTo(a)
}
