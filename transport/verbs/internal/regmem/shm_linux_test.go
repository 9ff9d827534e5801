package regmem_test

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/transport/verbs/internal/regmem"
	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/shm"
)

// Memory over the device that maps it: verbs/shm.

const mib = 1 << 20

var path = verbs.Path{Port: 1, Access: verbs.AccessRemoteWrite, MTU: verbs.MTU4096, Timeout: verbs.TimeoutCode(time.Second), Retry: 6, RNRRetry: 6, MinRNRTimer: verbs.DefaultMinRNRTimer}

// process is one end of a queue pair, with its memory.
type process struct {
	mem  *regmem.Memory
	dom  *regmem.Domain
	qp   verbs.QP
	cq   verbs.CQ
	gid  verbs.GID
	psn  verbs.PSN
	t    *testing.T
	ends []func() error
}

func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func newProcess(t *testing.T) *process {
	t.Helper()
	p := &process{t: t, psn: verbs.RandomPSN()}
	dev := must(shm.New(shm.Options{}).Open(shm.DeviceName))(t)
	pd := must(dev.AllocPD())(t)
	p.mem = must(regmem.New(regmem.Options{SendLimit: 64 * mib, RecvLimit: 64 * mib, LateWrite: func(w regmem.LateWrite) { t.Error(w) }}))(t)
	p.dom = must(p.mem.Attach(pd, dev.Info()))(t)
	p.cq = must(dev.CreateCQ(verbs.CQConfig{Size: 64}))(t)
	p.qp = must(pd.CreateQP(verbs.QPConfig{SendCQ: p.cq, RecvCQ: p.cq, MaxSend: 16, MaxRecv: 16}))(t)
	p.gid = must(dev.GIDs(1))(t)[0].GID
	if err := path.Init(p.qp); err != nil {
		t.Fatal(err)
	}
	p.ends = []func() error{p.qp.Close, p.mem.Close, p.cq.Close, pd.Close, dev.Close}
	t.Cleanup(p.end)
	return p
}

func (p *process) end() {
	for _, f := range p.ends {
		if err := f(); err != nil {
			p.t.Error(err)
		}
	}
	p.ends = nil
}

func (p *process) endpoint() verbs.Endpoint {
	e := p.qp.Endpoint()
	e.PSN, e.GID = p.psn, p.gid
	return e
}

// write sends a source to a destination of the peer, and waits until both know that it is
// there.
func (p *process) write(src regmem.SendMemory, peer *process, to regmem.Range, key verbs.RKey) {
	p.t.Helper()
	if _, err := peer.qp.PostRecv([]verbs.RecvWR{{}}); err != nil {
		p.t.Fatal(err)
	}
	wr := verbs.SendWR{
		Op: verbs.OpWriteImm, Signaled: true, RemoteAddr: to.Addr, RKey: key,
		SGL: []verbs.SGE{{Addr: src.Addr, Length: uint32(src.Len), LKey: src.LKey}},
	}
	if _, err := p.qp.PostSend([]verbs.SendWR{wr}); err != nil {
		p.t.Fatal(err)
	}
	for _, cq := range []verbs.CQ{peer.cq, p.cq} {
		wcs := make([]verbs.WC, 1)
		for n := 0; n == 0; {
			n = must(cq.Poll(wcs))(p.t)
		}
		if wcs[0].Status != verbs.StatusOK {
			p.t.Fatalf("%v", wcs[0].Status)
		}
	}
}

// mapped counts the memfds of this process's peers that it maps.
func mapped(t *testing.T) (n int) {
	t.Helper()
	maps := must(os.ReadFile("/proc/self/maps"))(t)
	for line := range strings.Lines(string(maps)) {
		f := strings.Fields(line)
		if len(f) > 5 && strings.HasPrefix(f[5], "/memfd:tryst") && !strings.HasPrefix(f[5], "/memfd:tryst-") && f[1] == "r--s" {
			n++
		}
	}
	return n
}

// TestATensorGoesThroughTheMappingOfItsArena: with memory of the sending pool, and of any
// other. When the arena goes back to the system, the peer's mapping is gone.
func TestATensorGoesThroughTheMappingOfItsArena(t *testing.T) {
	from, to := newProcess(t), newProcess(t)
	for _, c := range []struct{ a, b *process }{{from, to}, {to, from}} {
		if err := path.Connect(c.a.qp, c.a.psn, c.b.endpoint()); err != nil {
			t.Fatal(err)
		}
	}
	sent := must(from.mem.Allocator().Allocate(3 * mib))(t)
	received := must(from.dom.ReceiveAllocator().Allocate(mib))(t)
	account := to.dom.OpenAccount("peer")
	for i, buf := range []*tensor.Buffer{sent, received, sent} {
		copy(buf.Bytes(), bytes.Repeat([]byte{byte(i) + 1}, buf.Len()))
		src := must(from.dom.ForSending(buf, buf.Bytes(), regmem.NoGrow))(t)
		d := must(account.Destination(buf.Len(), regmem.OnDemand, regmem.MayGrow))(t)
		w := must(d.Lease(to.qp))(t)
		from.write(src, to, d.Range(), w.RKey())
		if !bytes.Equal(d.Buffer().Bytes(), buf.Bytes()) {
			t.Errorf("tensor %d: other content", i)
		}
		if err := w.Close(); err != nil {
			t.Error(err)
		}
		d.Release()
		src.Release()
	}
	if s := from.mem.Stats(time.Time{}); s.Copies > 0 {
		t.Errorf("%d copies", s.Copies)
	}
	if n := mapped(t); n != 1 {
		t.Errorf("the peer maps %d arenas, want that of the tensor", n)
	}
	sent.Release()
	received.Release()
	_, first := from.mem.Sweep(time.Time{}.Add(time.Hour))
	more, err := from.mem.Sweep(time.Time{}.Add(2 * time.Hour))
	err = errors.Join(err, first)
	for begin := time.Now(); more && time.Since(begin) < time.Minute; {
		var e error
		more, e = from.mem.Sweep(time.Time{}.Add(2 * time.Hour))
		err = errors.Join(err, e)
	}
	if n := mapped(t); err != nil || n != 0 || from.mem.Stats(time.Time{}).Sending.Registered != 0 {
		t.Errorf("%v; the peer maps %d arenas that went", err, n)
	}
	if err := account.Close(); err != nil {
		t.Error(err)
	}
}
