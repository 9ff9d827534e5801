package transporttest

import (
	"fmt"
	"math/rand/v2"
	"sync"

	"github.com/tryst-rdma/tryst/rendezvous"
)

// orderCases: rule 1 of ARCHITECTURE.md section 3.
func orderCases() []testCase {
	return []testCase{
		{name: "SendFirst", run: sendFirst},
		{name: "RecvFirst", run: recvFirst},
		{name: "RecvBeforeTheStepExists", run: recvBeforeStep},
		{name: "Blocking", run: blockingRecv},
		{name: "FirstInFirstOut", run: firstInFirstOut},
		{name: "PingPong", run: pingPong},
		{name: "RandomKeys", run: randomKeys},
		{name: "OneKeyAtOnce", run: oneKeyAtOnce},
	}
}

func sendFirst(w *world) {
	from, to := w.pair()
	k := w.key(from, to, "v")
	from.sendNumber(1, k, 7)
	to.recv(1, k).mustBeNumber(7)
}

func recvFirst(w *world) {
	from, to := w.pair()
	k := w.key(from, to, "v")
	from.in(1)
	r := to.recv(1, k)
	from.waiting(1)
	from.sendNumber(1, k, 7)
	r.mustBeNumber(7)
}

// recvBeforeStep: the receive arrives before the step exists at the sender.
func recvBeforeStep(w *world) {
	from, to := w.pair()
	k := w.key(from, to, "v")
	r := to.recv(1, k)
	from.waiting(1)
	from.sendNumber(1, k, 7)
	r.mustBeNumber(7)
}

func blockingRecv(w *world) {
	from, to := w.pair()
	k := w.key(from, to, "v")
	from.sendNumber(1, k, 7)
	v, err := to.in(1).Recv(w.ctx, k, rendezvous.Args{})
	if err != nil {
		w.Fatal(err)
	}
	defer v.Tensor.Release()
	if n, why := numberOf(v.Tensor); n != 7 || why != "" {
		w.Fatalf("got %d %s, want 7", n, why)
	}
}

// firstInFirstOut: successive receives get the values in the order of the sends.
func firstInFirstOut(w *world) {
	from, to := w.pair()
	k := w.key(from, to, "v")
	const n = 100
	for i := range n {
		from.sendNumber(1, k, i)
	}
	for i := range n {
		to.recv(1, k).mustBeNumber(i)
	}
}

func pingPong(w *world) {
	a, b := w.pair()
	ping, pong := w.key(a, b, "ping"), w.key(b, a, "pong")
	for i := range 100 {
		a.sendNumber(1, ping, i)
		b.recv(1, ping).mustBeNumber(i)
		b.sendNumber(1, pong, -i)
		a.recv(1, pong).mustBeNumber(-i)
	}
}

// randomKeys: many keys, some received before and some after their value is sent.
func randomKeys(w *world) {
	from, to := w.pair()
	rng := rand.New(rand.NewPCG(3, 0))
	const n = 100
	receives := make([]*receive, n)
	type event struct {
		send bool
		i    int
	}
	var events []event
	for i := range n {
		events = append(events, event{true, i}, event{false, i})
	}
	rng.Shuffle(len(events), func(i, j int) { events[i], events[j] = events[j], events[i] })
	for _, e := range events {
		k := w.key(from, to, fmt.Sprint("v", e.i))
		if e.send {
			from.sendNumber(1, k, e.i)
		} else {
			receives[e.i] = to.recv(1, k)
		}
	}
	for i, r := range receives {
		r.mustBeNumber(i)
	}
}

// oneKeyAtOnce: simultaneous receives of one key get different values, in any order.
func oneKeyAtOnce(w *world) {
	from, to := w.pair()
	k := w.key(from, to, "v")
	const n = 64
	receives := make([]*receive, n)
	var both sync.WaitGroup
	both.Go(func() {
		for i := range n {
			from.sendNumber(1, k, i)
		}
	})
	for i := range receives {
		receives[i] = to.recv(1, k)
	}
	both.Wait()
	w.eachOnce(receives, n)
}

// eachOnce fails the case unless the receives get the numbers below n, each once.
func (w *world) eachOnce(receives []*receive, n int) {
	w.Helper()
	seen := make([]bool, n)
	for _, r := range receives {
		i := r.number()
		if i < 0 || i >= n || seen[i] {
			w.Fatalf("number %d was received twice or never sent", i)
		}
		seen[i] = true
	}
}
