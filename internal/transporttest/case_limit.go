package transporttest

import (
	"fmt"

	"github.com/tryst-rdma/tryst/internal/delivery"
	"github.com/tryst-rdma/tryst/status"
)

// limitCases: the memory that one requester uses at a sender is bounded (rule 6 of
// ARCHITECTURE.md section 3, rule e of section 6).
func limitCases() []testCase {
	return []testCase{
		{name: "OfReceivesThatWait", run: limitWaiting},
		{name: "OfCachedResponses", run: limitKept},
		{name: "OfCachedResponsesWhileTheConnectionHangs", run: limitKeptStuck},
	}
}

func limitWaiting(w *world) {
	const most = 10
	from, to := w.newNode(0), w.start(1)
	from.start(NodeOptions{Cache: delivery.CacheOptions{MaxWaiting: most}})
	var receives []*receive
	for i := range most {
		receives = append(receives, to.recv(1, w.key(from, to, fmt.Sprint("v", i))))
	}
	from.waiting(most)
	to.recv(1, w.key(from, to, "beyond")).mustFail(status.ResourceExhausted, to.task.String())
	for i, r := range receives {
		from.sendNumber(1, w.key(from, to, fmt.Sprint("v", i)), i)
		r.mustBeNumber(i)
	}
	k := w.key(from, to, "later")
	from.sendNumber(1, k, 99)
	to.recv(1, k).mustBeNumber(99)
}

// limitKept: more responses are requested than the cache may hold. They arrive as space
// becomes free.
func limitKept(w *world) {
	from, to := w.newNode(0), w.start(1)
	from.start(NodeOptions{Cache: delivery.CacheOptions{KeptPerRequester: 200 * kib}})
	const n = 30
	var receives []*receive
	for i := range n {
		k := w.key(from, to, fmt.Sprint("v", i))
		receives = append(receives, to.recv(1, k))
		from.send(1, k, w.blob(uint64(i), (i+1)*10*kib)) // each of the last ones exceeds the limit
	}
	for i, r := range receives {
		r.mustBeBlob(uint64(i), (i+1)*10*kib)
	}
}

// limitKeptStuck: while the connection hangs, the cache does not exceed its limit.
func limitKeptStuck(w *world) {
	from, to := w.newNode(0), w.start(1)
	const limit = 200 * kib
	from.start(NodeOptions{Cache: delivery.CacheOptions{KeptPerRequester: limit}})
	faults := w.faults(from)
	w.warm(from, to)
	const n, size = 20, 30 * kib
	var receives []*receive
	for i := range n {
		receives = append(receives, to.recv(1, w.key(from, to, fmt.Sprint("v", i))))
	}
	from.waiting(n)
	w.waitClosed("the connection hangs", faults.HoldAfter(0))
	for i := range n {
		from.send(1, w.key(from, to, fmt.Sprint("v", i)), w.blob(uint64(i), size))
	}
	if s := from.Cache().Stats(); s.Bytes == 0 || s.Bytes > limit {
		w.Errorf("%d bytes are cached, the limit is %d", s.Bytes, limit)
	}
	faults.Release()
	for i, r := range receives {
		r.mustBeBlob(uint64(i), size)
	}
}
