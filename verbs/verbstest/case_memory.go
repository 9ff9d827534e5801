package verbstest

import (
	"errors"

	"github.com/tryst-rdma/tryst/verbs"
)

func memoryCases() []testCase {
	return []testCase{
		{name: "RegionAddrLenKeys", run: regionFields},
		{name: "NothingToRegister", run: nothingToRegister},
		{name: "TooLargeToRegister", needs: []Feature{MaxRegion}, run: tooLarge},
		{name: "RemoteWriteNeedsLocalWrite", run: remoteNeedsLocal},
		{name: "PartOfAMapping", run: partOfAMapping},
		{name: "TwiceTheSame", run: twiceTheSame},
		{name: "Window", needs: []Feature{Windows}, run: windowAccess},
		{name: "WindowIsOfItsQueuePair", needs: []Feature{Windows}, run: windowOfItsQP},
		{name: "WindowClose", needs: []Feature{Windows}, run: windowClose},
		{name: "WindowKeepsRegionBusy", needs: []Feature{Windows}, run: windowKeepsRegion},
		{name: "WindowsUnsupported", run: windowsUnsupported},
	}
}

func regionFields(w *world) {
	e := w.end(w.nodes[0], w.params())
	if e.mr.Len() != memorySize || e.mr.Addr() == 0 || e.mr.Addr()+e.mr.Len() < e.mr.Addr() {
		w.Errorf("%d bytes at %#x", e.mr.Len(), e.mr.Addr())
	}
	o := w.end(w.nodes[0], w.params())
	if o.mr.RKey() == e.mr.RKey() || o.mr.LKey() == e.mr.LKey() {
		w.Error("two regions have the same key")
	}
}

func nothingToRegister(w *world) {
	e := w.end(w.nodes[0], w.params())
	for _, mem := range [][]byte{nil, {}} {
		if mr, err := e.pd.RegisterMemory(mem, verbs.AccessLocalWrite); err == nil {
			w.Error("RegisterMemory accepts no bytes")
			w.noError(mr.Close())
		} else {
			w.errorIs(err, verbs.ErrInvalid)
		}
	}
}

func tooLarge(w *world) {
	e := w.end(w.nodes[0], w.params())
	limit := w.nodes[0].dev.Info().Limits.MRSize
	if limit > 1<<30 {
		w.Fatalf("a region may have %d bytes: Env.Unsupported must contain %q", limit, MaxRegion)
	}
	if mr, err := e.pd.RegisterMemory(w.memory(e.n, int(limit)+1), verbs.AccessLocalWrite); err == nil {
		w.Error("RegisterMemory accepts more than the limit")
		w.noError(mr.Close())
	}
}

// remoteNeedsLocal: ibv_reg_mr(3).
func remoteNeedsLocal(w *world) {
	e := w.end(w.nodes[0], w.params())
	mr, err := e.pd.RegisterMemory(w.memory(e.n, 4096), verbs.AccessRemoteWrite)
	if err == nil {
		w.Error("RegisterMemory accepts AccessRemoteWrite without AccessLocalWrite")
		w.noError(mr.Close())
	}
	w.errorIs(err, verbs.ErrInvalid)
}

// partOfAMapping: a region need not begin or end at a page boundary.
func partOfAMapping(w *world) {
	var whole []byte
	a, b := w.pair(func(s *params) {
		s.memory = func() []byte {
			whole = w.memory(w.nodes[1], memorySize)
			return whole[1001 : memorySize-1003]
		}
	})
	pattern(a.mem[:5000], 1)
	a.post(a.to(b, 1, verbs.OpWrite, 0, 5000, 0))
	a.expect(1, verbs.StatusOK)
	w.memoryIs(whole, 1001, a.mem[:5000], 0)
	a.isRejected(b, a.to(b, 2, verbs.OpWrite, 0, 8, len(b.mem)-7), verbs.StatusRemoteAccess)
}

func twiceTheSame(w *world) {
	a, b := w.pair()
	again, err := b.pd.RegisterMemory(b.mem[:4096], allMemory)
	if err != nil {
		w.Fatal(err)
	}
	pattern(a.mem[:64], 1)
	wr := a.to(b, 1, verbs.OpWrite, 0, 64, 0)
	wr.RemoteAddr, wr.RKey = again.Addr(), again.RKey()
	a.post(wr)
	a.expect(1, verbs.StatusOK)
	w.noError(again.Close())
	a.post(a.to(b, 2, verbs.OpWrite, 0, 64, 64))
	a.expect(2, verbs.StatusOK)
	w.memoryIs(b.mem[:64], 0, a.mem[:64], 0)
}

// through returns a write with the key of a window.
func (e *end) through(peer *end, win verbs.Window, id verbs.WRID, off, n, at int) verbs.SendWR {
	wr := e.to(peer, id, verbs.OpWrite, off, n, at)
	wr.RKey = win.RKey()
	return wr
}

func (e *end) window(off, n uint64, access verbs.Access) verbs.Window {
	e.w.Helper()
	win, err := e.qp.BindWindow(e.mr, off, n, access)
	if err != nil {
		e.w.Fatal(err)
	}
	return win
}

// windowAccess: the key of a window grants access to its range with its rights only
// (specification, volume 1, 10.6.6.2; ibv_bind_mw(3)).
func windowAccess(w *world) {
	a, b := w.pair()
	win := b.window(4096, 4096, verbs.AccessRemoteWrite)
	if c := b.n.dev.Counts(); c.Windows != 1 {
		w.Errorf("%+v are open", c)
	}
	if win.RKey() == b.mr.RKey() {
		w.Error("the window has the region's key")
	}
	pattern(a.mem[:4096], 1)
	a.post(a.through(b, win, 1, 0, 4096, 4096))
	a.expect(1, verbs.StatusOK)
	w.memoryIs(b.mem, 4096, a.mem[:4096], 0)
	a.isRejected(b, a.through(b, win, 2, 0, 64, 8192-63), verbs.StatusRemoteAccess)
	w.noError(win.Close())
	if w.unsupported(Reads) {
		return
	}
	a, b = w.pair()
	win = b.window(0, 4096, verbs.AccessRemoteWrite)
	read := a.to(b, 3, verbs.OpRead, 0, 8, 0)
	read.RKey = win.RKey()
	a.isRejected(b, read, verbs.StatusRemoteAccess)
	w.noError(win.Close())
}

// windowOfItsQP: the key of a type 2 window is valid only through its queue pair.
func windowOfItsQP(w *world) {
	s := w.params()
	a1, b1 := w.end(w.nodes[0], s), w.end(w.nodes[1], s)
	s.of = b1
	b2 := w.end(w.nodes[1], s)
	s.of = a1
	a2 := w.end(w.nodes[0], s)
	w.join(a1, b1)
	w.join(a2, b2)
	win := b1.window(0, 4096, verbs.AccessRemoteWrite)
	a1.post(a1.through(b1, win, 1, 0, 8, 0))
	a1.expect(1, verbs.StatusOK)
	a2.isRejected(b2, a2.through(b1, win, 2, 0, 8, 0), verbs.StatusRemoteAccess)
	w.noError(win.Close())
}

// windowClose: Close revokes the key of the window, and not that of its region.
func windowClose(w *world) {
	a, b := w.pair()
	win := b.window(0, 4096, verbs.AccessRemoteWrite)
	a.post(a.through(b, win, 1, 0, 8, 0))
	a.expect(1, verbs.StatusOK)
	w.noError(win.Close())
	w.noError(win.Close())
	a.post(a.to(b, 2, verbs.OpWrite, 0, 8, 0))
	a.expect(2, verbs.StatusOK)
	a.isRejected(b, a.through(b, win, 3, 0, 8, 0), verbs.StatusRemoteAccess)
}

func windowKeepsRegion(w *world) {
	_, b := w.pair()
	win := b.window(0, 4096, verbs.AccessRemoteWrite)
	w.errorIs(b.mr.Close(), verbs.ErrBusy)
	for _, bad := range [][2]uint64{{0, 0}, {memorySize, 1}, {1, memorySize}, {^uint64(0), 2}} {
		if extra, err := b.qp.BindWindow(b.mr, bad[0], bad[1], verbs.AccessRemoteWrite); err == nil {
			w.Errorf("BindWindow accepts %d bytes at %d", bad[1], bad[0])
			w.noError(extra.Close())
		}
	}
	w.noError(win.Close())
	w.noError(b.mr.Close())
}

// windowsUnsupported: BindWindow fails with ErrUnsupported on a device without windows.
func windowsUnsupported(w *world) {
	if !w.unsupported(Windows) {
		return
	}
	_, b := w.pair()
	_, err := b.qp.BindWindow(b.mr, 0, 4096, verbs.AccessRemoteWrite)
	w.errorIs(err, errors.ErrUnsupported)
}
