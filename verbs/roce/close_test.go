package roce

import (
	"net/netip"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/internal/rocewire"
	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/roce/internal/udp"
)

// TestDuplicateReadOfAClosedRegion: a READ may be repeated after its requester has the
// response, when the owner may have closed the region.
func TestDuplicateReadOfAClosedRegion(t *testing.T) {
	a, b := join(defaultConnection())
	a.post(a.to(b, 1, verbs.OpRead, 0, 8, 0))
	request := a.next(0)
	b.take(0, request)
	a.take(0, b.next(0))
	expectWCs(t, "sends", a.sent, ok(1)) // a has the response, so b may close the region
	b.take(0, request)                   // the duplicate
	b.domain.Keys.Remove(b.mr)
	b.next(0)
	if b.machine.state != verbs.StateRTS {
		t.Errorf("a duplicate brings the queue pair to %v", b.machine.state)
	}
}

// lateReceiveHost has receivers that return one more datagram after Close.
type lateReceiveHost struct {
	*memoryHost
	last   atomic.Pointer[udp.Datagram]
	closed chan struct{}
	goOn   chan struct{}
}

type lateReceiver struct {
	receiver
	h *lateReceiveHost
}

func (h *lateReceiveHost) listen(a netip.Addr) (receiver, error) {
	r, err := h.memoryHost.listen(a)
	return &lateReceiver{r, h}, err
}

func (r *lateReceiver) Close() error {
	err := r.receiver.Close()
	close(r.h.closed)
	return err
}

// Receive simulates a call of the kernel that returned a datagram just before Close.
func (r *lateReceiver) Receive(idle func()) ([]udp.Datagram, error) {
	d, err := r.receiver.Receive(idle)
	if last := r.h.last.Swap(nil); err != nil && last != nil {
		<-r.h.goOn
		return []udp.Datagram{*last}, nil
	}
	return d, err
}

// TestLatePacketWhileSocketsClose: a queue pair waits for the sockets of its address to
// close, and their last packet is for this queue pair.
func TestLatePacketWhileSocketsClose(t *testing.T) {
	f := newFabric()
	h := &lateReceiveHost{memoryHost: f.host(hostA), closed: make(chan struct{}), goOn: make(chan struct{})}
	p := newProvider(Options{}, h)
	addr := netip.MustParseAddr(hostA)

	// One opened device uses the sockets; another one has a queue pair in RESET.
	d1 := must(p.Open("roce-eth0"))(t)
	pd1 := must(d1.AllocPD())(t)
	cq1 := must(d1.CreateCQ(verbs.CQConfig{Size: 1}))(t)
	q1 := must(pd1.CreateQP(verbs.QPConfig{SendCQ: cq1, RecvCQ: cq1}))(t)
	if err := q1.ToInit(verbs.InitAttr{Port: onlyPort}); err != nil {
		t.Fatal(err)
	}
	d2 := must(p.Open("roce-eth0"))(t)
	pd2 := must(d2.AllocPD())(t)
	cq2 := must(d2.CreateCQ(verbs.CQConfig{Size: 1}))(t)
	q2 := must(pd2.CreateQP(verbs.QPConfig{SendCQ: cq2, RecvCQ: cq2}))(t)

	stray := rocewire.Header{Op: rocewire.Ack, PKey: rocewire.DefaultPKey, DestQP: q2.QPN()}
	b := rocewire.AppendICRC(stray.Append(nil), 0)
	h.last.Store(&udp.Datagram{Data: b, Segment: len(b), From: netip.AddrPortFrom(addr, 9)})

	for _, c := range []interface{ Close() error }{q1, cq1, pd1} {
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	ends := make(chan error, 2)
	go func() { ends <- d1.Close() }()
	<-h.closed
	go func() { ends <- q2.ToInit(verbs.InitAttr{Port: onlyPort}) }()
	<-time.After(50 * time.Millisecond) // ToInit waits for the sockets to close
	close(h.goOn)
	for range 2 {
		select {
		case err := <-ends:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(20 * time.Second):
			t.Fatal("Close and ToInit wait for each other")
		}
	}
	h.closed = make(chan struct{})
	for _, c := range []interface{ Close() error }{q2, cq2, pd2, d2} {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestMemoryOfAClosedRegionIsFree: after MR.Close, a flow must not keep a slice of the
// memory, which would keep all of it alive.
func TestMemoryOfAClosedRegionIsFree(t *testing.T) {
	f := newFabric()
	x, y := f.pair(t, 1<<20)
	joinEnds(x, y, nil)
	freed := make(chan struct{})
	func() {
		big := new([64 << 20]byte)
		runtime.SetFinalizer(big, func(any) { close(freed) })
		mr := must(x.pd.RegisterMemory(big[:], allRights))(t)
		x.post(verbs.SendWR{
			ID: 1, Op: verbs.OpWrite, Signaled: true, RemoteAddr: y.mr.Addr(), RKey: y.mr.RKey(),
			SGL: []verbs.SGE{{Addr: mr.Addr(), Length: 256 << 10, LKey: mr.LKey()}},
		})
		x.ends(1, verbs.StatusOK)
		x.closes(mr)
	}()
	for i := range 100 { // the queue pair continues with short messages
		x.post(x.to(y, verbs.WRID(2+i), verbs.OpWrite, 0, 8, 0))
		x.ends(verbs.WRID(2+i), verbs.StatusOK)
	}
	for range 200 {
		runtime.GC()
		select {
		case <-freed:
			return
		case <-time.After(20 * time.Millisecond): // finalizers run on a goroutine of their own
		}
	}
	t.Error("64 MiB of a closed region are still held")
}
