package roce

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/internal/soft"
)

// testEnd is one end of a connection between devices. It is closed when the test ends.
type testEnd struct {
	t        testing.TB
	provider *Provider
	dev      verbs.Device
	pd       verbs.PD
	cq       verbs.CQ
	qp       verbs.QP
	mr       verbs.MR
	mem      []byte
	addr     netip.Addr
	psn      verbs.PSN
	wcs      []verbs.WC // polled and not yet returned by wait
	room     [16]verbs.WC
	ctx      context.Context // of take
}

const (
	endDepth = 256
	// testTimeout is 1 s: lost packets are retransmitted much earlier.
	testTimeout = 18
)

// newTestEnd opens a device and creates a queue pair in INIT with that much memory.
func newTestEnd(t testing.TB, p *Provider, device string, addr netip.Addr, size int) *testEnd {
	t.Helper()
	x := &testEnd{t: t, ctx: context.Background(), provider: p, addr: addr, mem: make([]byte, size)}
	x.dev = must(p.Open(device))(t)
	x.pd = must(x.dev.AllocPD())(t)
	x.mr = must(x.pd.RegisterMemory(x.mem, allRights))(t)
	t.Cleanup(func() { x.closes(x.mr, x.pd, x.dev) })
	return x.another(t, 4*endDepth, verbs.QPConfig{MaxSend: endDepth, MaxRecv: endDepth, MaxSendSGE: 4, MaxRecvSGE: 4, MaxInline: 256})
}

// another creates another queue pair of the same opened device and memory, with a
// completion queue of its own.
func (x *testEnd) another(t testing.TB, entries int, c verbs.QPConfig) *testEnd {
	t.Helper()
	e := &testEnd{t: t, ctx: x.ctx, provider: x.provider, addr: x.addr, mem: x.mem, dev: x.dev, pd: x.pd, mr: x.mr, psn: verbs.PSN(soft.Random32() & psnMask)}
	e.cq = must(e.dev.CreateCQ(verbs.CQConfig{Size: entries}))(t)
	c.SendCQ, c.RecvCQ = e.cq, e.cq
	e.qp = must(e.pd.CreateQP(c))(t)
	t.Cleanup(func() { e.closes(e.qp, e.cq) })
	if err := e.path().Init(e.qp); err != nil {
		t.Fatal(err)
	}
	return e
}

func (x *testEnd) closes(list ...interface{ Close() error }) {
	for _, c := range list {
		if err := c.Close(); err != nil {
			x.t.Error(err)
		}
	}
}

// must fails the test on an error.
func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func (x *testEnd) path() verbs.Path {
	table := must(x.dev.GIDs(onlyPort))(x.t)
	p := verbs.Path{
		Port: onlyPort, MTU: verbs.MTU4096, Access: allRights, Timeout: testTimeout, Retry: 6, RNRRetry: rnrInfinite,
		MinRNRTimer: verbs.DefaultMinRNRTimer, ReadAtomic: 4,
	}
	for _, e := range table {
		if e.GID == verbs.GIDFromAddr(x.addr) {
			p.SGIDIndex = uint8(e.Index)
		}
	}
	return p
}

func (x *testEnd) endpoint() verbs.Endpoint {
	e := x.qp.Endpoint()
	e.PSN, e.GID = x.psn, verbs.GIDFromAddr(x.addr)
	return e
}

// joinEnds connects two ends. change, if not nil, modifies what each end gets of the
// other.
func joinEnds(x, y *testEnd, change func(*verbs.Path, *verbs.Endpoint)) {
	for _, e := range [][2]*testEnd{{x, y}, {y, x}} {
		path, peer := e[0].path(), e[1].endpoint()
		if change != nil {
			change(&path, &peer)
		}
		if err := path.Connect(e[0].qp, e[0].psn, peer); err != nil {
			x.t.Fatal(err)
		}
	}
}

// pair returns two connected ends on a fabric.
func (f *fabric) pair(t testing.TB, size int) (x, y *testEnd) {
	t.Helper()
	a, b := f.host(hostA), f.host(hostB)
	x = newTestEnd(t, newProvider(Options{}, a), "roce-eth0", netip.MustParseAddr(hostA), size)
	y = newTestEnd(t, newProvider(Options{}, b), "roce-eth0", netip.MustParseAddr(hostB), size)
	return x, y
}

// to returns a signaled operation on a part of each end's memory.
func (x *testEnd) to(y *testEnd, id verbs.WRID, op verbs.Opcode, off, n, at int) verbs.SendWR {
	return verbs.SendWR{
		ID: id, Op: op, Signaled: true, RemoteAddr: y.mr.Addr() + uint64(at), RKey: y.mr.RKey(),
		SGL: []verbs.SGE{{Addr: x.mr.Addr() + uint64(off), Length: uint32(n), LKey: x.mr.LKey()}},
	}
}

func (x *testEnd) post(wrs ...verbs.SendWR) {
	x.t.Helper()
	if n, err := x.qp.PostSend(wrs); n != len(wrs) || err != nil {
		x.t.Fatalf("posted %d of %d: %v", n, len(wrs), err)
	}
}

func (x *testEnd) recv(id verbs.WRID, off, n int) {
	x.t.Helper()
	wr := verbs.RecvWR{ID: id, SGL: []verbs.SGE{{Addr: x.mr.Addr() + uint64(off), Length: uint32(n), LKey: x.mr.LKey()}}}
	if _, err := x.qp.PostRecv([]verbs.RecvWR{wr}); err != nil {
		x.t.Fatal(err)
	}
}

// wait returns the next completion. It fails the test after a minute.
func (x *testEnd) wait() verbs.WC {
	x.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for armed := false; len(x.wcs) == 0; {
		var wcs [64]verbs.WC
		n, err := x.cq.Poll(wcs[:])
		if err != nil {
			x.t.Fatal(err)
		}
		x.wcs = append(x.wcs, wcs[:n]...)
		switch {
		case n > 0:
		case !armed:
			if err := x.cq.Arm(false); err != nil {
				x.t.Fatal(err)
			}
			armed = true
		default:
			if err := x.cq.Wait(ctx); err != nil {
				x.t.Fatal(err)
			}
			armed = false
		}
	}
	wc := x.wcs[0]
	x.wcs = x.wcs[1:]
	return wc
}

// ends waits for the completion of a work request with that status.
func (x *testEnd) ends(id verbs.WRID, want verbs.Status) {
	x.t.Helper()
	if wc := x.wait(); wc.ID != id || wc.Status != want {
		x.t.Errorf("work request %d ends with %v, want %d with %v", uint64(wc.ID), wc.Status, uint64(id), want)
	}
}
