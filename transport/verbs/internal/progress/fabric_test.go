package progress_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/transport/verbs/internal/progress"
	"github.com/tryst-rdma/tryst/transport/verbs/internal/regmem"
	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/verbstest"
)

// node is one end: a device, a queue pair and its queue, registered memory.
type node struct {
	t    testing.TB
	dev  verbs.Device
	pd   verbs.PD
	cq   verbs.CQ
	qp   verbs.QP
	all  *regmem.Memory
	mem  *regmem.Domain
	send *regmem.Slots
	recv *regmem.Slots
	q    *progress.Queue
}

const (
	slots    = 64
	slotSize = 24 // id, address, key
	kindSend = 1
	kindRecv = 2
	mib      = 1 << 20
)

var path = verbs.Path{
	Port: 1, Access: verbs.AccessRemoteWrite, SGIDIndex: 1, MTU: verbs.MTU4096, Timeout: 14, Retry: 6, RNRRetry: 6,
	MinRNRTimer: verbs.DefaultMinRNRTimer,
}

// must fails the test on an error. Call it on the test's goroutine.
func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func newNode(t testing.TB, f *verbstest.Fabric, host string) *node {
	n := &node{t: t, dev: must(f.Provider(host).Open("mem0"))(t)}
	n.pd = must(n.dev.AllocPD())(t)
	n.cq = must(n.dev.CreateCQ(verbs.CQConfig{Size: 4 * slots}))(t)
	n.all = must(regmem.New(regmem.Options{
		Arena: mib, SendLimit: 16 * mib, RecvLimit: 16 * mib,
		LateWrite: func(w regmem.LateWrite) { t.Error(w) },
	}))(t)
	n.mem = must(n.all.Attach(n.pd, n.dev.Info()))(t)
	n.send = must(n.mem.NewSlots(slots, slotSize, regmem.SendSlots))(t)
	n.recv = must(n.mem.NewSlots(slots, slotSize, regmem.RecvSlots))(t)
	n.qp = must(n.pd.CreateQP(verbs.QPConfig{SendCQ: n.cq, RecvCQ: n.cq, MaxSend: slots, MaxRecv: slots}))(t)
	if err := path.Init(n.qp); err != nil {
		t.Fatal(err)
	}
	for i := range slots {
		n.post(i)
	}
	return n
}

// post posts receive slot i.
func (n *node) post(i int) {
	wr := verbs.RecvWR{ID: verbs.NewWRID(0, 0, uint32(i), kindRecv), SGL: []verbs.SGE{n.recv.SGE(i, slotSize)}}
	if _, err := n.qp.PostRecv([]verbs.RecvWR{wr}); err != nil {
		n.t.Error(err)
	}
}

func (n *node) connect(to *node) {
	e := to.qp.Endpoint()
	e.PSN = 7
	e.GID = must(to.dev.GIDs(1))(n.t)[1].GID
	if err := path.Connect(n.qp, 7, e); err != nil {
		n.t.Fatal(err)
	}
}

// close closes everything in order. It calls destroyed when the device accesses no memory
// any more.
func (n *node) close(destroyed func()) {
	n.t.Helper()
	gone := func() error { destroyed(); return nil }
	for _, c := range []func() error{n.q.Stop, n.qp.Close, gone, n.send.Close, n.recv.Close, n.all.Close, n.cq.Close, n.pd.Close, n.dev.Close} {
		if err := c(); err != nil {
			n.t.Error(err)
		}
	}
	if s := n.all.Stats(time.Now()); s.Sending.InUse != 0 || s.Receiving.InUse != 0 || s.Early != 0 || s.Slots != 0 {
		n.t.Errorf("left: %+v", s)
	}
}

// Requests by SEND, content by WRITE_WITH_IMM out of a tensor's own memory into
// memory that the request names, from many goroutines over one queue pair, over a
// network that loses packets.
func TestTensorsOverTheFabric(t *testing.T) {
	for _, mode := range []progress.Mode{progress.ModeAdaptive, progress.ModeBusy, progress.ModeEvent} {
		t.Run(mode.String(), func(t *testing.T) { transfers(t, mode, 8, 40) })
	}
}

func transfers(t testing.TB, mode progress.Mode, people, each int) {
	f := verbstest.NewFabric(verbstest.Options{
		Latency: 20 * time.Microsecond, Loss: 0.002,
		Devices: []verbstest.DeviceOptions{{NoWindows: true}}, // requests carry the rkey of the arena
	})
	defer f.Close()
	requester, sender := newNode(t, f, "requester"), newNode(t, f, "sender")
	spinners := progress.NewSpinners(0)

	// The sender: one tensor, sent for each request.
	const size = 100_000
	content := must(sender.all.Allocator().Allocate(size))(t)
	for i := range content.Bytes() {
		content.Bytes()[i] = byte(i * 7)
	}
	var sources []regmem.SendMemory // in the order of their writes; touched with the token held
	sender.q = progress.Start(progress.Config{CQ: sender.cq, Mode: mode, Spinners: spinners, Failed: func(err error) { t.Error(err) }, Handle: func(wcs []verbs.WC, _ time.Time) {
		for _, wc := range wcs {
			i := int(wc.ID.Slot())
			switch {
			case wc.Status != verbs.StatusOK:
				t.Errorf("%v: %v", wc.ID, wc.Status)
			case wc.ID.Kind() == kindSend:
				sources[0].Release()
				sources = sources[1:]
			default:
				m := sender.recv.Slot(i)
				id, addr, key := binary.BigEndian.Uint32(m), binary.BigEndian.Uint64(m[8:]), binary.BigEndian.Uint32(m[16:])
				sender.post(i)
				src, err := sender.mem.ForSending(content, content.Bytes(), regmem.NoGrow)
				if err != nil {
					t.Error(err)
					continue
				}
				sources = append(sources, src)
				if _, err := sender.qp.PostSend([]verbs.SendWR{{
					ID: verbs.NewWRID(0, 0, id, kindSend), Op: verbs.OpWriteImm, Signaled: true, Imm: id, RemoteAddr: addr, RKey: verbs.RKey(key),
					SGL: []verbs.SGE{{Addr: src.Addr, Length: uint32(src.Len), LKey: src.LKey}},
				}}); err != nil {
					t.Error(err)
				}
			}
		}
	}})

	var waiting [slots]atomic.Pointer[progress.Waiter]
	requester.q = progress.Start(progress.Config{CQ: requester.cq, Mode: mode, Spinners: spinners, Failed: func(err error) { t.Error(err) }, Handle: func(wcs []verbs.WC, _ time.Time) {
		for _, wc := range wcs {
			switch {
			case wc.Status != verbs.StatusOK:
				t.Errorf("%v: %v", wc.ID, wc.Status)
			case wc.Op == verbs.WCRecvWrite:
				requester.post(int(wc.ID.Slot()))
				waiting[wc.Imm].Load().Done()
			}
		}
	}})
	requester.connect(sender)
	sender.connect(requester)

	account := requester.mem.OpenAccount("sender")
	var wg sync.WaitGroup
	for i := range people {
		wg.Go(func() {
			w := requester.q.NewWaiter()
			waiting[i].Store(w)
			for range each {
				if err := pull(t.Context(), requester, account, i, w, content); err != nil {
					t.Error(err)
					return
				}
				w.Reset()
			}
		})
	}
	wg.Wait()
	if err := account.Close(); err != nil {
		t.Error(err)
	}
	if s := sender.all.Stats(time.Now()); s.Copies != 0 {
		t.Errorf("%d copies", s.Copies)
	}
	t.Logf("%+v", requester.q.Stats())
	content.Release()
	requester.close(func() {})
	sender.close(func() { // the last acknowledgements may not have come
		for _, s := range sources {
			s.Release()
		}
	})
	if c := f.Counts(); c != (verbs.Counts{}) {
		t.Errorf("left open: %+v", c)
	}
}

// pull receives the tensor once.
func pull(ctx context.Context, requester *node, account *regmem.Account, i int, w *progress.Waiter, want *tensor.Buffer) error {
	d, err := account.Destination(want.Len(), regmem.InAdvance, regmem.MayGrow)
	if err != nil {
		return err
	}
	defer d.Release()
	p, m := d.Range(), requester.send.Slot(i)
	binary.BigEndian.PutUint32(m, uint32(i))
	binary.BigEndian.PutUint64(m[8:], p.Addr)
	binary.BigEndian.PutUint32(m[16:], uint32(p.RKey))
	if _, err := requester.qp.PostSend([]verbs.SendWR{{
		ID: verbs.NewWRID(0, 0, uint32(i), kindSend), Op: verbs.OpSend, Signaled: true, SGL: []verbs.SGE{requester.send.SGE(i, slotSize)},
	}}); err != nil {
		return err
	}
	if err := w.Wait(ctx); err != nil {
		return err
	}
	if string(d.Buffer().Bytes()) != string(want.Bytes()) {
		return fmt.Errorf("receive %d has other bytes", i)
	}
	return nil
}
