package transporttest

import "fmt"

const (
	kib = 1 << 10
	mib = 1 << 20
	gib = 1 << 30
)

// sizes are at and next to the limits at which transports behave differently: what fits into
// a message, a packet, a page, a unary response.
var sizes = []int{
	0, 1, 8, kib - 1, kib, kib + 1, 4*kib - 1, 4 * kib, 64*kib - 1, 64 * kib, 64*kib + 1,
	mib, mib + 1, 4*mib - 1, 4 * mib, 32*mib - 1, 32 * mib, 32*mib + 1, 64 * mib, 256 * mib, gib,
}

func sizeCases() []testCase {
	var cases []testCase
	for _, size := range sizes {
		cases = append(cases, testCase{name: fmt.Sprint(size), size: int64(size), run: func(w *world) { oneSize(w, size) }})
	}
	return append(cases,
		testCase{name: "ChangingUnderOneKey", run: changingSizes},
		testCase{name: "ManyLarge", size: 48 * mib, run: manyLarge},
	)
}

func oneSize(w *world, size int) {
	from, to := w.pair()
	k := w.key(from, to, "v")
	from.send(1, k, w.blob(1, size))
	to.recv(1, k).mustBeBlob(1, size)
}

// changingSizes: a receiver that remembers the last type and shape of a key must detect a
// change.
func changingSizes(w *world) {
	from, to := w.pair()
	k := w.key(from, to, "v")
	for i, size := range []int{100 * kib, 100 * kib, 7, 0, 300 * kib, 300*kib + 1, 299 * kib, 1, 100 * kib} {
		from.send(1, k, w.blob(uint64(i), size))
		to.recv(1, k).mustBeBlob(uint64(i), size)
	}
}

// manyLarge: several large transfers at once, in both directions.
func manyLarge(w *world) {
	a, b := w.pair()
	const size, n = 12 * mib, 4
	var receives []*receive
	for i := range n {
		from, to := a, b
		if i%2 == 1 {
			from, to = b, a
		}
		k := w.key(from, to, fmt.Sprint("v", i))
		receives = append(receives, to.recv(1, k))
		from.send(1, k, w.blob(uint64(i), size))
	}
	for i, r := range receives {
		r.mustBeBlob(uint64(i), size)
	}
}
