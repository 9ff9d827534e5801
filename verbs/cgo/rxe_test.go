//go:build rxe && linux && cgo

// Tests on the kernel's Soft-RoCE: rxe0 and rxe1, on the two ends of a veth pair.

package libibverbs_test

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tryst-rdma/tryst/verbs"
	libibverbs "github.com/tryst-rdma/tryst/verbs/cgo"
)

// rxePatience is how long a test waits for what must come: an emulated machine
// is slow.
const rxePatience = 40 * time.Second

// side is one end of a connection, with a memory region.
type side struct {
	t    *testing.T
	dev  verbs.Device
	pd   verbs.PD
	cq   verbs.CQ
	qp   verbs.QP
	mem  []byte
	mr   verbs.MR
	gid  verbs.GIDEntry
	port verbs.PortInfo
	psn  verbs.PSN
}

func open(t *testing.T, name string) verbs.Device {
	t.Helper()
	dev, err := libibverbs.New(libibverbs.Options{}).Open(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := dev.Close(); err != nil {
			t.Errorf("close %s: %v", name, err)
		}
		if c := dev.Counts(); c != (verbs.Counts{}) {
			t.Errorf("%s: left open: %+v", name, c)
		}
	})
	return dev
}

func mapped(t testing.TB, size int) []byte {
	t.Helper()
	mem, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Munmap(mem); err != nil {
			t.Error(err)
		}
	})
	return mem
}

func closing(t testing.TB, what string, c interface{ Close() error }) {
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("close %s: %v", what, err)
		}
	})
}

func newSide(t *testing.T, device string, size int) *side {
	t.Helper()
	s := &side{t: t, dev: open(t, device), psn: 0xfffff0}
	var err error
	if s.port, err = s.dev.Port(1); err != nil {
		t.Fatal(err)
	}
	gids, err := s.dev.GIDs(1)
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range gids {
		if g.GID.Addr().Is4() && g.Type == verbs.GIDTypeRoCEv2 {
			s.gid = g
		}
	}
	if s.gid.GID.IsZero() {
		t.Fatalf("%s has no GID of an IPv4 address: %v", device, gids)
	}
	s.mem = mapped(t, size)
	if s.pd, err = s.dev.AllocPD(); err != nil {
		t.Fatal(err)
	}
	closing(t, "PD", s.pd)
	if s.mr, err = s.pd.RegisterMemory(s.mem, verbs.AccessLocalWrite|verbs.AccessRemoteWrite|verbs.AccessRemoteRead|verbs.AccessRelaxedOrdering); err != nil {
		t.Fatal(err)
	}
	closing(t, "MR", s.mr)
	if s.cq, err = s.dev.CreateCQ(verbs.CQConfig{Size: 256}); err != nil {
		t.Fatal(err)
	}
	closing(t, "CQ", s.cq)
	if s.qp, err = s.pd.CreateQP(verbs.QPConfig{SendCQ: s.cq, RecvCQ: s.cq, MaxSend: 64, MaxRecv: 64, MaxSendSGE: 2, MaxRecvSGE: 2, MaxInline: 64}); err != nil {
		t.Fatal(err)
	}
	closing(t, "QP", s.qp)
	return s
}

func (s *side) path() verbs.Path {
	return verbs.Path{
		Port: 1, Access: verbs.AccessRemoteWrite | verbs.AccessRemoteRead, SGIDIndex: uint8(s.gid.Index),
		MTU: s.port.ActiveMTU, Timeout: 14, Retry: 6, RNRRetry: 6, MinRNRTimer: verbs.DefaultMinRNRTimer, ReadAtomic: 1,
	}
}

func (s *side) connect(peer *side) {
	s.t.Helper()
	end := peer.qp.Endpoint()
	end.GID, end.PSN = peer.gid.GID, peer.psn
	if err := s.path().Connect(s.qp, s.psn, end); err != nil {
		s.t.Fatal(err)
	}
}

func pair(t *testing.T, size int) (a, b *side) {
	t.Helper()
	a, b = newSide(t, "rxe0", size), newSide(t, "rxe1", size)
	for _, s := range []*side{a, b} {
		if err := s.path().Init(s.qp); err != nil {
			t.Fatal(err)
		}
	}
	a.connect(b)
	b.connect(a)
	return a, b
}

func (s *side) sge(offset, n int) []verbs.SGE {
	return []verbs.SGE{{Addr: s.mr.Addr() + uint64(offset), Length: uint32(n), LKey: s.mr.LKey()}}
}

func (s *side) send(wrs ...verbs.SendWR) {
	s.t.Helper()
	if n, err := s.qp.PostSend(wrs); n != len(wrs) || err != nil {
		s.t.Fatalf("PostSend: %d of %d, %v", n, len(wrs), err)
	}
}

func (s *side) recv(wrs ...verbs.RecvWR) {
	s.t.Helper()
	if n, err := s.qp.PostRecv(wrs); n != len(wrs) || err != nil {
		s.t.Fatalf("PostRecv: %d of %d, %v", n, len(wrs), err)
	}
}

// completions waits for n by events.
func (s *side) completions(n int) []verbs.WC {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), rxePatience)
	defer cancel()
	got := make([]verbs.WC, 0, n)
	wcs := make([]verbs.WC, n)
	poll := func() int {
		k, err := s.cq.Poll(wcs[:n-len(got)])
		if err != nil {
			s.t.Fatal(err)
		}
		got = append(got, wcs[:k]...)
		return k
	}
	for len(got) < n {
		if poll() > 0 {
			continue
		}
		if err := s.cq.Arm(false); err != nil {
			s.t.Fatal(err)
		}
		if poll() > 0 {
			continue
		}
		if err := s.cq.Wait(ctx); err != nil {
			s.t.Fatalf("%d of %d completions came: %v", len(got), n, err)
		}
	}
	return got
}

func TestRxeSendsAndWrites(t *testing.T) {
	const size = 1 << 20
	a, b := pair(t, size)
	for i := range a.mem {
		a.mem[i] = byte(i * 7)
	}

	b.recv(verbs.RecvWR{ID: 100, SGL: b.sge(0, 64)}, verbs.RecvWR{ID: 101}, verbs.RecvWR{ID: 102, SGL: b.sge(size-64, 64)})
	a.send(
		verbs.SendWR{ID: 1, Op: verbs.OpSend, Inline: []byte("inline bytes are copied"), Signaled: true},
		verbs.SendWR{ID: 2, Op: verbs.OpWrite, SGL: a.sge(64, size/2), RemoteAddr: b.mr.Addr() + 64, RKey: b.mr.RKey()},
		verbs.SendWR{ID: 3, Op: verbs.OpWriteImm, SGL: a.sge(64+size/2, 1000), RemoteAddr: b.mr.Addr() + 64 + size/2, RKey: b.mr.RKey(), Imm: 0x01020304, Signaled: true},
		verbs.SendWR{ID: 4, Op: verbs.OpSendImm, SGL: append(a.sge(0, 8), a.sge(16, 8)...), Imm: 5, Signaled: true, Solicited: true},
	)
	for i, want := range []verbs.WC{
		{ID: 1, Op: verbs.WCSend}, {ID: 3, Op: verbs.WCWrite}, {ID: 4, Op: verbs.WCSend},
	} {
		if got := a.completions(1)[0]; got.ID != want.ID || got.Status != verbs.StatusOK || got.Op != want.Op || got.QPN != a.qp.QPN() {
			t.Errorf("completion %d is %+v (%v), want %+v", i, got, got.Status, want)
		}
	}
	for i, want := range []verbs.WC{
		{ID: 100, Op: verbs.WCRecv, Len: 23}, {ID: 101, Op: verbs.WCRecvWrite, HasImm: true, Imm: 0x01020304, Len: 1000},
		{ID: 102, Op: verbs.WCRecv, HasImm: true, Imm: 5, Len: 16},
	} {
		got := b.completions(1)[0]
		want.QPN = b.qp.QPN()
		if i == 1 {
			got.Len = want.Len // Not every driver fills it in.
		}
		if got != want {
			t.Errorf("receive %d is %+v (%v), want %+v", i, got, got.Status, want)
		}
	}
	if got := string(b.mem[:23]); got != "inline bytes are copied" {
		t.Errorf("received %q", got)
	}
	if !bytes.Equal(b.mem[64:64+size/2+1000], a.mem[64:64+size/2+1000]) {
		t.Error("what was written differs")
	}
	if want := append(bytes.Clone(a.mem[:8]), a.mem[16:24]...); !bytes.Equal(b.mem[size-64:size-48], want) {
		t.Error("what was sent from two elements differs")
	}

	// And back, by RDMA read.
	a.send(verbs.SendWR{ID: 5, Op: verbs.OpRead, SGL: a.sge(0, 23), RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey(), Signaled: true})
	if got := a.completions(1)[0]; got.ID != 5 || got.Status != verbs.StatusOK || got.Op != verbs.WCRead || string(a.mem[:23]) != "inline bytes are copied" {
		t.Errorf("read gave %+v and %q", got, a.mem[:23])
	}
}

func TestRxeWaitEndsWithItsContextAndWithClose(t *testing.T) {
	a := newSide(t, "rxe0", 4096)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	if err := a.cq.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Wait gives %v", err)
	}
	if _, err := a.dev.NextEvent(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("NextEvent gives %v", err)
	}
	dev := open(t, "rxe0")
	cq, err := dev.CreateCQ(verbs.CQConfig{Size: 1})
	if err != nil {
		t.Fatal(err)
	}
	waits := make(chan error, 2)
	go func() { waits <- cq.Wait(context.Background()) }()
	go func() { _, err := dev.NextEvent(context.Background()); waits <- err }()
	if err := dev.Close(); !errors.Is(err, verbs.ErrBusy) {
		t.Errorf("Close of a device with a queue gives %v", err)
	}
	if err := cq.Close(); err != nil {
		t.Error(err)
	}
	if err := dev.Close(); err != nil {
		t.Error(err)
	}
	for range 2 {
		if err := <-waits; !errors.Is(err, verbs.ErrClosed) {
			t.Errorf("a wait ended with %v", err)
		}
	}
}
