package tcp

import (
	"context"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/internal/soft"
)

// side is one side of a connection in a test, with its own device.
type side struct {
	t   testing.TB
	dev *device
	pd  verbs.PD
	cq  *soft.CQ
	qp  *qp
	mem []byte
	mr  verbs.MR
	psn verbs.PSN

	path verbs.Path
}

const allRights = verbs.AccessLocalWrite | verbs.AccessRemoteWrite | verbs.AccessRemoteRead | verbs.AccessRemoteAtomic | verbs.AccessBindWindow

// newSide opens a device and creates one of each object, which end with the test.
func newSide(t testing.TB, o Options, size int) *side {
	t.Helper()
	return newSideOf(t, New(o), size)
}

func newSideOf(t testing.TB, p verbs.Provider, size int) *side {
	t.Helper()
	s := &side{t: t, mem: make([]byte, size), psn: verbs.RandomPSN()}
	dev, err := p.Open(deviceName)
	s.check(err)
	if o, ok := dev.(*ownedListener); ok {
		s.dev = o.Device.(*device) //nolint:errcheck // what Open returns
	} else {
		s.dev = dev.(*device) //nolint:errcheck // likewise
	}
	s.atEnd(dev.Close)
	s.pd, err = dev.AllocPD()
	s.check(err)
	s.atEnd(s.pd.Close)
	s.mr, err = s.pd.RegisterMemory(s.mem, allRights)
	s.check(err)
	s.atEnd(s.mr.Close)
	c, err := dev.CreateCQ(verbs.CQConfig{Size: 512})
	s.check(err)
	s.cq = c.(*soft.DrivenCQ).CQ //nolint:errcheck // what CreateCQ returns
	s.atEnd(c.Close)
	q, err := s.pd.CreateQP(verbs.QPConfig{SendCQ: c, RecvCQ: c, MaxSend: 256, MaxRecv: 256, MaxSendSGE: 4, MaxRecvSGE: 4, MaxInline: 64})
	s.check(err)
	s.qp = q.(*qp) //nolint:errcheck // what CreateQP returns
	s.atEnd(q.Close)
	s.path = verbs.Path{
		Port: onlyPort, Access: allRights &^ verbs.AccessLocalWrite &^ verbs.AccessBindWindow, MTU: verbs.MTU4096, ReadAtomic: 4,
		// Their patience, 3.8 s, is longer than a busy machine lets a goroutine rest.
		Timeout: verbs.TimeoutCode(250 * time.Millisecond), Retry: 6, RNRRetry: 7, MinRNRTimer: verbs.DefaultMinRNRTimer,
	}
	return s
}

func (s *side) check(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *side) atEnd(closeIt func() error) {
	s.t.Cleanup(func() {
		if err := closeIt(); err != nil {
			s.t.Error(err)
		}
	})
}

// endpoint returns the endpoint for the peer.
func (s *side) endpoint() verbs.Endpoint {
	e := s.qp.Endpoint()
	e.PSN, e.GID = s.psn, s.dev.gid
	return e
}

// connect connects two sides. It does not wait for the connection.
func connect(a, b *side) {
	a.t.Helper()
	a.check(a.path.Init(a.qp))
	b.check(b.path.Init(b.qp))
	a.check(a.path.Connect(a.qp, a.psn, b.endpoint()))
	b.check(b.path.Connect(b.qp, b.psn, a.endpoint()))
}

// pair returns two connected sides, both of which can be dialed. Their patience is longer than a busy
// machine lets a process rest.
func pair(t testing.TB, size int) (a, b *side) {
	t.Helper()
	o := Options{ListenOn: "127.0.0.1:0"}
	a, b = newSide(t, o, size), newSide(t, o, size)
	a.path.Timeout = verbs.TimeoutCode(time.Second)
	b.path.Timeout = a.path.Timeout
	connect(a, b)
	return a, b
}

// write returns a signaled write of n bytes at off of this side to the same place at the peer.
func (s *side) write(peer *side, id verbs.WRID, off, n int) verbs.SendWR {
	return verbs.SendWR{ID: id, Op: verbs.OpWrite, Signaled: true, SGL: []verbs.SGE{s.sge(off, n)}, RemoteAddr: peer.mr.Addr() + uint64(off), RKey: peer.mr.RKey()}
}

func (s *side) send(id verbs.WRID, off, n int) verbs.SendWR {
	return verbs.SendWR{ID: id, Op: verbs.OpSend, Signaled: true, SGL: []verbs.SGE{s.sge(off, n)}}
}

func (s *side) sge(off, n int) verbs.SGE {
	return verbs.SGE{Addr: s.mr.Addr() + uint64(off), Length: uint32(n), LKey: s.mr.LKey()}
}

func (s *side) post(wrs ...verbs.SendWR) {
	s.t.Helper()
	if n, err := s.qp.PostSend(wrs); err != nil || n != len(wrs) {
		s.t.Fatalf("posted %d of %d: %v", n, len(wrs), err)
	}
}

func (s *side) recv(id verbs.WRID, off, n int) {
	s.t.Helper()
	if _, err := s.qp.PostRecv([]verbs.RecvWR{{ID: id, SGL: []verbs.SGE{s.sge(off, n)}}}); err != nil {
		s.t.Fatal(err)
	}
}

// next waits for the next completion.
func (s *side) next() verbs.WC {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var wcs [1]verbs.WC
	for {
		for range 2 { // once before arming, once after
			n, err := s.cq.Poll(wcs[:])
			s.check(err)
			if n == 1 {
				return wcs[0]
			}
			s.check(s.cq.Arm(false))
		}
		if err := s.cq.Wait(ctx); err != nil {
			s.t.Fatalf("no completion: %v", err)
		}
	}
}

func (s *side) expect(id verbs.WRID, status verbs.Status) {
	s.t.Helper()
	if wc := s.next(); wc.ID != id || wc.Status != status {
		s.t.Fatalf("the completion is of %d with %v, want %d with %v (%v)", wc.ID, wc.Status, id, status, s.qp.ConnectionError())
	}
}
