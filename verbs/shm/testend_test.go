//go:build linux

package shm

import (
	"context"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/internal/rc"
)

// testEnd is one end of a connection, with memory in a memfd that the peer reads itself. It is
// closed when the test ends.
type testEnd struct {
	t   testing.TB
	dev verbs.Device
	pd  verbs.PD
	cq  verbs.CQ
	qp  *qp
	mr  verbs.MR
	mem []byte
	psn verbs.PSN
	wcs []verbs.WC // polled and not yet returned by wait
	// room is space for polled.
	room [1]verbs.WC
}

const (
	endDepth  = 128
	allRights = verbs.AccessLocalWrite | verbs.AccessRemoteWrite | verbs.AccessRemoteRead | verbs.AccessRemoteAtomic | verbs.AccessBindWindow
	qpRights  = verbs.AccessRemoteWrite | verbs.AccessRemoteRead | verbs.AccessRemoteAtomic
)

func newTestEnd(t testing.TB, p *Provider, size int) *testEnd {
	t.Helper()
	x := &testEnd{t: t, psn: verbs.RandomPSN()}
	x.dev = must(p.Open(DeviceName))(t)
	x.pd = must(x.dev.AllocPD())(t)
	f := must(newMemfd(size))(t)
	x.mem = f.mem
	x.mr = must(as[*pd](x.pd).RegisterShared(x.mem, f.fd, 0, allRights))(t)
	t.Cleanup(func() { x.close(x.mr, x.pd, x.dev); f.free() })
	x.cq = must(x.dev.CreateCQ(verbs.CQConfig{Size: 4 * endDepth}))(t)
	made := must(x.pd.CreateQP(verbs.QPConfig{
		SendCQ: x.cq, RecvCQ: x.cq, MaxSend: endDepth, MaxRecv: endDepth, MaxSendSGE: 4, MaxRecvSGE: 4, MaxInline: 64,
	}))(t)
	x.qp = as[*qp](made)
	t.Cleanup(func() { x.close(x.qp, x.cq) })
	if err := x.path().Init(x.qp); err != nil {
		t.Fatal(err)
	}
	return x
}

func (x *testEnd) close(list ...interface{ Close() error }) {
	for _, c := range list {
		if err := c.Close(); err != nil {
			x.t.Error(err)
		}
	}
}

func (x *testEnd) path() verbs.Path {
	return verbs.Path{Port: onlyPort, MTU: verbs.MTU4096, Access: qpRights, Timeout: 17, Retry: 6, RNRRetry: rc.RNRUnlimited, ReadAtomic: 4}
}

func (x *testEnd) endpoint() verbs.Endpoint {
	e := x.qp.Endpoint()
	e.PSN, e.GID = x.psn, as[*device](x.dev).gid
	return e
}

func (x *testEnd) connect(peer verbs.Endpoint) {
	x.t.Helper()
	if err := x.path().Connect(x.qp, x.psn, peer); err != nil {
		x.t.Fatal(err)
	}
}

// newPair returns two connected ends of one provider.
func newPair(t testing.TB, p *Provider, size int) (x, y *testEnd) {
	t.Helper()
	x, y = newTestEnd(t, p, size), newTestEnd(t, p, size)
	x.connect(y.endpoint())
	y.connect(x.endpoint())
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

// rnrDelay is long enough for tests that post a receive before seven of them are over, on a busy machine, too.
const rnrDelay = 500 * time.Millisecond

// retriesAreOver is when the retries of retryWithoutReceive would be over that begin now.
func retriesAreOver() time.Time { return time.Now().Add(10 * rnrDelay) }

// retryWithoutReceive makes the end retry six times, every rnrDelay, when its peer has no receive. Nothing else ends its
// requests.
func (e *testEnd) retryWithoutReceive() {
	e.t.Helper()
	e.qp.mu.Lock()
	defer e.qp.mu.Unlock()
	e.qp.machine.EnterRTS(&verbs.RTSAttr{RNRRetry: 6, MaxReadAtomic: maxReadAtomic}, 0)
	e.qp.req.rnrDelay, e.qp.req.timeout = rnrDelay, time.Hour
}
