package verbstest

import (
	"context"
	"errors"
	"time"

	"github.com/tryst-rdma/tryst/verbs"
)

func eventCases() []testCase {
	return []testCase{
		{name: "EventWakes", run: eventWakes},
		{name: "EventBeforeWait", run: eventBeforeWait},
		{name: "NoEventWithoutArming", run: noEventWithoutArming},
		{name: "SolicitedOnly", run: solicitedOnly},
		{name: "FailureIsAlwaysSolicited", run: failureIsSolicited},
		{name: "NoWakeUpIsLost", run: noLostWakeUp},
		{name: "NoWakeUpIsLostInABurst", run: noLostWakeUpInBurst},
		{name: "WaitEndsWithItsContext", run: waitEndsWithContext},
		{name: "WaitEndsWithClose", run: waitEndsWithClose},
		{name: "NextEventEndsWithItsContext", run: nextEventEndsWithContext},
		{name: "NextEventEndsWithClose", run: nextEventEndsWithClose},
		{name: "PortDownAndUp", needs: []Feature{PortEvents}, run: portDownAndUp},
	}
}

// eventWakes: ibv_req_notify_cq(3), ibv_get_cq_event(3).
func eventWakes(w *world) {
	a, b := w.pair()
	b.recv(1, 0, 8)
	w.noError(b.cq.Arm(false))
	done := w.background(func() { w.noError(b.cq.Wait(w.ctx)) })
	pause(w.scaled(quiet))
	select {
	case <-done:
		w.Fatal("Wait returned without a completion")
	default:
	}
	a.post(a.send(2, 0, 8))
	<-done
	b.expect(1, verbs.StatusOK)
}

func eventBeforeWait(w *world) {
	a, b := w.pair()
	b.recv(1, 0, 8)
	w.noError(b.cq.Arm(false))
	a.post(a.send(2, 0, 8))
	b.expect(1, verbs.StatusOK)
	w.noError(b.cq.Wait(w.ctx))
}

// noEventWithoutArming: Arm requests one event.
func noEventWithoutArming(w *world) {
	a, b := w.pair()
	b.recv(1, 0, 8)
	b.recv(2, 0, 8)
	b.recv(3, 0, 8)
	a.post(a.send(9, 0, 8))
	b.expect(1, verbs.StatusOK)
	b.noEvent()
	w.noError(b.cq.Arm(false))
	a.post(a.send(9, 0, 8))
	b.expect(2, verbs.StatusOK)
	w.noError(b.cq.Wait(w.ctx))
	a.post(a.send(9, 0, 8))
	b.expect(3, verbs.StatusOK)
	b.noEvent()
}

// noEvent checks that Wait finds no event.
func (e *end) noEvent() {
	e.w.Helper()
	ctx, cancel := context.WithTimeout(e.w.ctx, e.w.scaled(quiet))
	defer cancel()
	if err := e.cq.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
		e.w.Errorf("Wait ends with %v", err)
	}
}

// solicitedOnly: specification, volume 1, 11.4.2.2.
func solicitedOnly(w *world) {
	a, b := w.pair()
	b.recv(1, 0, 8)
	b.recv(2, 0, 8)
	w.noError(b.cq.Arm(true))
	a.post(a.send(9, 0, 8))
	b.expect(1, verbs.StatusOK)
	b.noEvent()
	wr := a.send(9, 0, 8)
	wr.Solicited = true
	a.post(wr)
	w.noError(b.cq.Wait(w.ctx))
	b.expect(2, verbs.StatusOK)
}

func failureIsSolicited(w *world) {
	_, b := w.pair()
	b.recv(1, 0, 8)
	w.noError(b.cq.Arm(true))
	w.noError(b.qp.ToErr())
	w.noError(b.cq.Wait(w.ctx))
	b.expect(1, verbs.StatusFlushed)
}

// noLostWakeUp exchanges messages in turns; both ends block in Wait in between.
func noLostWakeUp(w *world) {
	a, b := w.pair()
	player := func(e *end, serves bool) {
		for i := range wakeUps {
			if serves {
				if !e.serve(w, i) {
					return
				}
			}
			for got := false; !got; {
				wc, err := e.wait()
				if err != nil || wc.Status != verbs.StatusOK {
					w.Errorf("round %d: %+v, %v", i, wc, err)
					return
				}
				if got = wc.Op == verbs.WCRecv; got && wc.ID != verbs.WRID(i) {
					w.Errorf("round %d: message %d", i, wc.ID)
					return
				}
			}
			if i+2 < wakeUps {
				if _, err := e.qp.PostRecv([]verbs.RecvWR{{ID: verbs.WRID(i + 2), SGL: []verbs.SGE{e.sge(0, 8)}}}); err != nil {
					w.Error(err)
					return
				}
			}
			if !serves && !e.serve(w, i) {
				return
			}
		}
	}
	for i := range 2 {
		a.recv(verbs.WRID(i), 0, 8)
		b.recv(verbs.WRID(i), 0, 8)
	}
	done := w.background(func() { player(b, false) })
	player(a, true)
	<-done
}

// serve sends a message. Every 16th is signaled.
func (e *end) serve(w *world, i int) bool {
	wr := e.send(1<<20, 8, 8)
	wr.Signaled = i%16 == 15
	if n, err := e.qp.PostSend([]verbs.SendWR{wr}); n != 1 || err != nil {
		w.Errorf("round %d: %d posted, %v", i, n, err)
		return false
	}
	return true
}

// noLostWakeUpInBurst: completions occur while the queue is being armed, polled and waited
// for.
func noLostWakeUpInBurst(w *world) {
	a, b := w.pair()
	for i := range b.params.recvs {
		b.recv(verbs.WRID(i), 0, 8)
	}
	credits := make(chan struct{}, wakeUps)
	for range b.params.recvs {
		credits <- struct{}{}
	}
	done := w.background(func() {
		for i := range wakeUps {
			select {
			case <-credits:
			case <-w.ctx.Done():
				w.Errorf("message %d: no receive is posted", i)
				return
			}
			wr := a.send(verbs.WRID(i), 0, 8)
			wr.Signaled = i%8 == 7
			if n, err := a.qp.PostSend([]verbs.SendWR{wr}); n != 1 || err != nil {
				w.Errorf("message %d: %d posted, %v", i, n, err)
				return
			}
			if wr.Signaled {
				if wc, err := a.wait(); err != nil || wc.Status != verbs.StatusOK {
					w.Errorf("message %d: %+v, %v", i, wc, err)
					return
				}
			}
		}
	})
	for i := range wakeUps {
		wc, err := b.wait()
		if err != nil || wc.Status != verbs.StatusOK {
			w.Errorf("after %d messages: %+v, %v", i, wc, err)
			break
		}
		if n, err := b.qp.PostRecv([]verbs.RecvWR{{ID: verbs.WRID(i), SGL: []verbs.SGE{b.sge(0, 8)}}}); n != 1 || err != nil {
			w.Errorf("%d posted, %v", n, err)
			break
		}
		credits <- struct{}{}
	}
	<-done
}

func waitEndsWithContext(w *world) {
	a, b := w.pair()
	ctx, cancel := context.WithCancel(w.ctx)
	done := w.background(func() {
		if err := b.cq.Wait(ctx); !errors.Is(err, context.Canceled) {
			w.Errorf("Wait ends with %v", err)
		}
	})
	pause(w.scaled(time.Millisecond))
	cancel()
	<-done
	if err := b.cq.Wait(ctx); !errors.Is(err, context.Canceled) {
		w.Errorf("Wait ends with %v", err)
	}
	// A later Wait works.
	b.recv(1, 0, 8)
	w.noError(b.cq.Arm(false))
	a.post(a.send(2, 0, 8))
	w.noError(b.cq.Wait(w.ctx))
}

func waitEndsWithClose(w *world) {
	c, err := w.nodes[0].dev.CreateCQ(verbs.CQConfig{Size: 4})
	if err != nil {
		w.Fatal(err)
	}
	done := w.background(func() { w.errorIs(c.Wait(w.ctx), verbs.ErrClosed) })
	pause(w.scaled(time.Millisecond))
	w.noError(c.Close())
	select {
	case <-done:
	case <-w.ctx.Done():
		w.Fatal("Wait does not return")
	}
	w.errorIs(c.Wait(w.ctx), verbs.ErrClosed)
}

func nextEventEndsWithContext(w *world) {
	ctx, cancel := context.WithTimeout(w.ctx, w.scaled(quiet))
	defer cancel()
	for {
		_, err := w.nodes[0].dev.NextEvent(ctx)
		if err == nil {
			continue // an event of the device, unrelated to this case
		}
		if !errors.Is(err, context.DeadlineExceeded) {
			w.Errorf("NextEvent ends with %v", err)
		}
		return
	}
}

func nextEventEndsWithClose(w *world) {
	e := w.nodes[0].end
	dev, err := e.Provider.Open(e.Device)
	if err != nil {
		w.Fatal(err)
	}
	done := w.background(func() {
		for {
			if _, err := dev.NextEvent(w.ctx); err != nil {
				w.errorIs(err, verbs.ErrClosed)
				return
			}
		}
	})
	pause(w.scaled(time.Millisecond))
	w.noError(dev.Close())
	select {
	case <-done:
	case <-w.ctx.Done():
		w.Fatal("NextEvent does not return")
	}
}

// portDownAndUp: IBV_EVENT_PORT_ERR and IBV_EVENT_PORT_ACTIVE of
// ibv_get_async_event(3).
func portDownAndUp(w *world) {
	a, b := w.pair()
	a.sendsTo(b)
	n := w.nodes[0]
	w.Cleanup(func() { w.env.SetPort(w, n.end, true) })
	for _, step := range []struct {
		up    bool
		kind  verbs.EventKind
		state verbs.PortState
	}{{false, verbs.EventPortDown, verbs.PortDown}, {true, verbs.EventPortActive, verbs.PortActive}} {
		w.env.SetPort(w, n.end, step.up)
		if _, ok := n.nextEvent(soon, func(e verbs.AsyncEvent) bool { return e.Kind == step.kind && e.Port == n.end.Port }); !ok {
			w.Errorf("no event %v occurred", step.kind)
		}
		if !w.eventually(soon, func() bool {
			p, err := n.dev.Port(n.end.Port)
			if err != nil {
				w.Fatal(err)
			}
			return p.State == step.state
		}) {
			w.Errorf("the port does not become %v", step.state)
		}
	}
	a.sendsTo(b)
}
