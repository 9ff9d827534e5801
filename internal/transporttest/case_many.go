package transporttest

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/tryst-rdma/tryst/rendezvous"
)

func manyCases() []testCase {
	return []testCase{
		{name: "TenThousandReceivesAtOnce", run: tenThousandReceives},
		{name: "HundredThousandKeysWait", run: hundredThousandKeys},
		{name: "AllToAll", run: allToAll},
	}
}

// tenThousandReceives: all receives wait at the sender at once, as in TensorFlow's test of its
// remote rendezvous.
func tenThousandReceives(w *world) {
	from, to := w.pair()
	const n = 10_000
	w.timeout += n * receiveTime * time.Duration(w.suite.TimeScale)
	keys := make([]rendezvous.Key, n)
	receives := make([]*receive, n)
	for i := range n {
		keys[i] = w.key(from, to, fmt.Sprint("v", i))
		receives[i] = to.recv(1, keys[i])
	}
	from.waiting(n)
	for i, k := range keys {
		from.sendNumber(1, k, i)
	}
	for i, r := range receives {
		r.mustBeNumber(i)
	}
}

// hundredThousandKeys: values wait at the sender, and most of them are never received.
func hundredThousandKeys(w *world) {
	from, to := w.pair()
	const n, asked = 100_000, 200
	x := w.number(3)
	defer x.Release()
	key := func(i int) rendezvous.Key { return w.key(from, to, fmt.Sprint("v", i)) }
	for i := range n {
		if err := from.in(1).Send(key(i), noArgs, x, false); err != nil {
			w.Fatal(err)
		}
	}
	rng := rand.New(rand.NewPCG(8, 0))
	for _, i := range rng.Perm(n)[:asked] {
		to.recv(1, key(i)).mustBeNumber(3)
	}
}

// allToAll: three processes, each sends to and receives from all others at once.
func allToAll(w *world) {
	nodes := []*node{w.start(0), w.start(1), w.start(2)}
	const perPair = 40
	type expect struct {
		r    *receive
		seed uint64
		size int
	}
	var all []expect
	for i := range perPair {
		for f, from := range nodes {
			for t, to := range nodes {
				if f == t {
					continue
				}
				k := w.key(from, to, fmt.Sprint("v", i))
				seed, size := loadBlob(10*f+t, i)
				if i%2 == 0 {
					from.send(1, k, w.blob(seed, size))
				}
				all = append(all, expect{to.recv(1, k), seed, size})
				if i%2 == 1 {
					from.send(1, k, w.blob(seed, size))
				}
			}
		}
	}
	for _, e := range all {
		e.r.mustBeBlob(e.seed, e.size)
	}
}
