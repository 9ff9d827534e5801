package verbstest

import (
	"testing"

	"github.com/tryst-rdma/tryst/verbs"
)

// BenchmarkRoundTrip sends a message of 8 bytes in each direction.
func BenchmarkRoundTrip(b *testing.B) {
	x, y := pair(b, NewFabric(Options{}))
	wcs := make([]verbs.WC, 4)
	recvs := map[*side][]verbs.RecvWR{}
	sends := map[*side][]verbs.SendWR{}
	for _, s := range []*side{x, y} {
		recvs[s] = []verbs.RecvWR{{ID: 1, SGL: []verbs.SGE{s.sge(0, 64)}}}
		sends[s] = []verbs.SendWR{{ID: 1, Op: verbs.OpSend, Signaled: true, SGL: []verbs.SGE{s.sge(0, 8)}}}
	}
	one := func(from, to *side) {
		if _, err := to.qp.PostRecv(recvs[to]); err != nil {
			b.Fatal(err)
		}
		send := sends[from]
		if _, n, err := from.qp.PostSendAndPoll(send, from.cq, wcs); n != 1 || err != nil {
			b.Fatal(n, err)
		}
		if n, err := to.cq.Poll(wcs); n != 1 || err != nil {
			b.Fatal(n, err)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		one(x, y)
		one(y, x)
	}
}

// BenchmarkWrite writes 1 MiB.
func BenchmarkWrite(b *testing.B) {
	x, y := pair(b, NewFabric(Options{}))
	fill(x.mem, 1)
	wcs := make([]verbs.WC, 4)
	wr := []verbs.SendWR{x.write(1, y, 0, sideMemory)}
	b.ReportAllocs()
	b.SetBytes(sideMemory)
	for b.Loop() {
		if _, n, err := x.qp.PostSendAndPoll(wr, x.cq, wcs); n != 1 || err != nil {
			b.Fatal(n, err)
		}
	}
}
