package verbstest

import (
	"bytes"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tryst-rdma/tryst/verbs"
)

// side is one end of a connection with all its objects.
type side struct {
	t   testing.TB
	dev verbs.Device
	pd  verbs.PD
	cq  verbs.CQ
	qp  verbs.QP
	mem []byte
	mr  verbs.MR
	psn verbs.PSN
}

const sideMemory = 1 << 20

// sidePath is the path of the connections of these tests. A dead peer is detected after 4
// timeouts of 67 ms.
var sidePath = verbs.Path{
	Port: 1, Access: verbs.AccessRemoteWrite | verbs.AccessRemoteRead | verbs.AccessRemoteAtomic,
	SGIDIndex: gidIndexIPv4, MTU: verbs.MTU4096, Timeout: 14, Retry: 3, RNRRetry: 3,
	MinRNRTimer: verbs.DefaultMinRNRTimer, ReadAtomic: 8,
}

func newSide(t testing.TB, f *Fabric, host string) *side {
	t.Helper()
	s := &side{t: t, mem: make([]byte, sideMemory)}
	var err error
	if s.dev, err = f.Provider(host).Open("mem0"); err != nil {
		t.Fatal(err)
	}
	if s.pd, err = s.dev.AllocPD(); err != nil {
		t.Fatal(err)
	}
	if s.cq, err = s.dev.CreateCQ(verbs.CQConfig{Size: 256}); err != nil {
		t.Fatal(err)
	}
	const all = verbs.AccessLocalWrite | verbs.AccessRemoteWrite | verbs.AccessRemoteRead | verbs.AccessRemoteAtomic | verbs.AccessBindWindow
	if s.mr, err = s.pd.RegisterMemory(s.mem, all); err != nil {
		t.Fatal(err)
	}
	s.newQP()
	return s
}

func (s *side) newQP() {
	s.t.Helper()
	var err error
	s.qp, err = s.pd.CreateQP(verbs.QPConfig{SendCQ: s.cq, RecvCQ: s.cq, MaxSend: 64, MaxRecv: 64, MaxSendSGE: 4, MaxRecvSGE: 4, MaxInline: 64})
	if err != nil {
		s.t.Fatal(err)
	}
	s.psn = verbs.PSN(s.qp.QPN()) ^ 0x5a5a
	if err := sidePath.Init(s.qp); err != nil {
		s.t.Fatal(err)
	}
}

func (s *side) endpoint() verbs.Endpoint {
	e := s.qp.Endpoint()
	e.PSN = s.psn
	gids, err := s.dev.GIDs(1)
	if err != nil {
		s.t.Fatal(err)
	}
	e.GID = gids[gidIndexIPv4].GID
	return e
}

func (s *side) close() {
	s.t.Helper()
	for _, c := range []interface{ Close() error }{s.qp, s.mr, s.cq, s.pd, s.dev} {
		if err := c.Close(); err != nil {
			s.t.Error(err)
		}
	}
}

func connect(t testing.TB, a, b *side) {
	t.Helper()
	if err := sidePath.Connect(a.qp, a.psn, b.endpoint()); err != nil {
		t.Fatal(err)
	}
	if err := sidePath.Connect(b.qp, b.psn, a.endpoint()); err != nil {
		t.Fatal(err)
	}
}

// pair returns two connected sides on two hosts. At the end of the test it closes them and
// checks that no object is left.
func pair(t testing.TB, f *Fabric) (*side, *side) {
	t.Helper()
	a, b := newSide(t, f, "a"), newSide(t, f, "b")
	connect(t, a, b)
	t.Cleanup(func() {
		a.close()
		b.close()
		if c := f.Counts(); c != (verbs.Counts{}) {
			t.Errorf("left open: %+v", c)
		}
		f.Close()
	})
	return a, b
}

func (s *side) sge(off, n int) verbs.SGE {
	return verbs.SGE{Addr: s.mr.Addr() + uint64(off), Length: uint32(n), LKey: s.mr.LKey()}
}

func (s *side) recv(id verbs.WRID, off, n int) {
	s.t.Helper()
	if _, err := s.qp.PostRecv([]verbs.RecvWR{{ID: id, SGL: []verbs.SGE{s.sge(off, n)}}}); err != nil {
		s.t.Fatal(err)
	}
}

func (s *side) post(wrs ...verbs.SendWR) {
	s.t.Helper()
	if n, err := s.qp.PostSend(wrs); err != nil || n != len(wrs) {
		s.t.Fatalf("posted %d of %d: %v", n, len(wrs), err)
	}
}

// write returns a signaled write of this side's memory to the same offset of the peer's.
func (s *side) write(id verbs.WRID, to *side, off, n int) verbs.SendWR {
	return verbs.SendWR{
		ID: id, Op: verbs.OpWrite, Signaled: true, SGL: []verbs.SGE{s.sge(off, n)},
		RemoteAddr: to.mr.Addr() + uint64(off), RKey: to.mr.RKey(),
	}
}

// next waits for the next completion.
func (s *side) next() verbs.WC {
	s.t.Helper()
	var wc [1]verbs.WC
	for {
		if n, err := s.cq.Poll(wc[:]); err != nil {
			s.t.Fatal(err)
		} else if n == 1 {
			return wc[0]
		}
		if err := s.cq.Arm(false); err != nil {
			s.t.Fatal(err)
		}
		if n, err := s.cq.Poll(wc[:]); err != nil {
			s.t.Fatal(err)
		} else if n == 1 {
			return wc[0]
		}
		if err := s.cq.Wait(s.t.Context()); err != nil {
			s.t.Fatal(err)
		}
	}
}

func (s *side) expect(id verbs.WRID, status verbs.Status) verbs.WC {
	s.t.Helper()
	wc := s.next()
	if wc.ID != id || wc.Status != status {
		s.t.Fatalf("completion %+v (%v), want id %d, %v", wc, wc.Status, id, status)
	}
	return wc
}

func (s *side) idle() {
	s.t.Helper()
	var wc [1]verbs.WC
	if n, err := s.cq.Poll(wc[:]); n != 0 || err != nil {
		s.t.Fatalf("a completion too many: %+v, %v", wc[0], err)
	}
}

func fill(b []byte, seed byte) {
	for i := range b {
		b[i] = byte(i)*31 + byte(i>>8)*17 + seed
	}
}

func TestSendAndWriteCarryBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := pair(t, NewFabric(Options{Seed: 1}))
		const n = 3*segmentSize + 5
		fill(a.mem[:n], 1)
		b.recv(7, 0, n)
		a.post(verbs.SendWR{ID: 1, Op: verbs.OpSendImm, Imm: 99, Signaled: true, SGL: []verbs.SGE{a.sge(0, n)}})
		if wc := b.expect(7, verbs.StatusOK); wc.Len != n || !wc.HasImm || wc.Imm != 99 || wc.Op != verbs.WCRecv {
			t.Errorf("%+v", wc)
		}
		a.expect(1, verbs.StatusOK)
		if !bytes.Equal(a.mem[:n], b.mem[:n]) {
			t.Error("the message has wrong bytes")
		}
		fill(a.mem[:n], 2)
		a.post(a.write(2, b, 0, n))
		a.expect(2, verbs.StatusOK)
		if !bytes.Equal(a.mem[:n], b.mem[:n]) {
			t.Error("the write stored wrong bytes")
		}
		b.idle()
	})
}

func TestDestroyedPeerFailsAfterRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := pair(t, NewFabric(Options{Seed: 1, Latency: time.Microsecond}))
		b.qp.Close()
		start := time.Now()
		a.post(verbs.SendWR{ID: 1, Op: verbs.OpWrite, Signaled: true})
		a.expect(1, verbs.StatusRetryExceeded)
		least := 4 * verbs.TimeoutDuration(sidePath.Timeout)
		if d := time.Since(start); d < least || d > least+time.Millisecond {
			t.Errorf("failed after %v, want %v", d, least)
		}
		if s, err := a.qp.State(); s != verbs.StateErr || err != nil {
			t.Errorf("state %v, %v", s, err)
		}
	})
}

func TestEverythingPostedIsFlushed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := pair(t, NewFabric(Options{Seed: 1}))
		b.qp.Close()
		for i := range 40 {
			w := a.write(verbs.WRID(i), b, 0, 8)
			w.Signaled = false
			a.post(w)
		}
		for i := range 16 {
			a.recv(verbs.WRID(100+i), 0, 8)
		}
		a.expect(0, verbs.StatusRetryExceeded)
		for i := range 39 {
			a.expect(verbs.WRID(1+i), verbs.StatusFlushed)
		}
		for i := range 16 {
			a.expect(verbs.WRID(100+i), verbs.StatusFlushed)
		}
		a.idle()
	})
}

func TestSmallMessagesAllocateNothing(t *testing.T) {
	a, b := pair(t, NewFabric(Options{Seed: 1}))
	recvs := []verbs.RecvWR{{ID: 1, SGL: []verbs.SGE{b.sge(0, 64)}}}
	sends := []verbs.SendWR{{ID: 1, Op: verbs.OpSend, Signaled: true, SGL: []verbs.SGE{a.sge(0, 64)}}}
	wcs := make([]verbs.WC, 4)
	round := func() {
		if _, err := b.qp.PostRecv(recvs); err != nil {
			t.Fatal(err)
		}
		if _, n, err := a.qp.PostSendAndPoll(sends, a.cq, wcs); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		if n, err := b.cq.Poll(wcs); n != 1 || err != nil {
			t.Fatal(n, err)
		}
	}
	for range 200 {
		round() // each slot of the rings once
	}
	if n := testing.AllocsPerRun(1000, round); n > 0 {
		t.Errorf("%v allocations a message", n)
	}
}

func TestOpenNamesTheDevices(t *testing.T) {
	f := NewFabric(Options{Devices: []DeviceOptions{{Name: "x0"}, {Name: "x1"}}})
	_, err := f.Provider("a").Open("mlx5_0")
	if !errors.Is(err, verbs.ErrNotFound) || !bytes.Contains([]byte(err.Error()), []byte("[x0 x1]")) {
		t.Error(err)
	}
}

func TestUnsupportedFeatures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := NewFabric(Options{Devices: []DeviceOptions{{NoWindows: true, NoAtomics: true, NoGoMemory: true, MaxInline: 64}}})
		a, b := pair(t, f)
		if i := a.dev.Info(); i.Windows || i.Limits.Atomics || i.GoMemory {
			t.Errorf("%+v", i)
		}
		if _, err := a.qp.BindWindow(a.mr, 0, 8, verbs.AccessRemoteWrite); !errors.Is(err, errors.ErrUnsupported) {
			t.Error(err)
		}
		wr := a.write(1, b, 0, 8)
		wr.Op = verbs.OpFetchAdd
		if n, err := a.qp.PostSend([]verbs.SendWR{wr}); n != 0 || !errors.Is(err, verbs.ErrInvalid) {
			t.Error(n, err)
		}
		if _, err := a.pd.CreateQP(verbs.QPConfig{SendCQ: a.cq, RecvCQ: a.cq, MaxInline: 65}); !errors.Is(err, verbs.ErrInvalid) {
			t.Error(err)
		}
	})
}
