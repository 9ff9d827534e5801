package verbstest

import (
	"bytes"
	"encoding/binary"

	"github.com/tryst-rdma/tryst/verbs"
)

func dataCases() []testCase {
	return []testCase{
		{name: "Send", run: func(w *world) { sendSizes(w, verbs.OpSend) }},
		{name: "SendWithImm", run: func(w *world) { sendSizes(w, verbs.OpSendImm) }},
		{name: "Write", run: func(w *world) { writeSizes(w, verbs.OpWrite) }},
		{name: "WriteWithImm", run: func(w *world) { writeSizes(w, verbs.OpWriteImm) }},
		{name: "Read", needs: []Feature{Reads}, run: readSizes},
		{name: "ReadsInARow", needs: []Feature{Reads}, run: readsInARow},
		{name: "FenceWaitsForReads", needs: []Feature{Reads}, run: fenceWaits},
		{name: "Atomics", needs: []Feature{Atomics}, run: atomics},
		{name: "Inline", needs: []Feature{Inline}, run: inline},
		{name: "InlineTooLong", needs: []Feature{Inline}, run: inlineTooLong},
		{name: "EmptyWriteNeedsNoReceiveNorKey", run: emptyWrite},
		{name: "EmptySendTakesAReceive", run: emptySend},
		{name: "EmptyWriteWithImm", run: emptyWriteImm},
		{name: "ScatterAndGather", run: scatterGather},
		{name: "TooManyElements", run: tooManyElements},
		{name: "ShorterThanTheReceive", run: shorter},
		{name: "InOrder", run: inOrder},
		{name: "ContentBeforeImm", run: contentBeforeImm},
		{name: "ManyAtOnce", run: manyAtOnce},
	}
}

// sizedPair returns a pair and the message lengths to test: around the packet boundaries,
// and Env.Sizes.
func (w *world) sizedPair() (a, b *end, sizes []int) {
	a, b = w.pair(func(s *params) {
		for _, n := range w.env.Sizes {
			s.size = max(s.size, n+4096)
		}
	})
	m := int(a.path(b).MTU)
	return a, b, append([]int{0, 1, 3, 4, 8, m - 1, m, m + 1, 4*m + 5, 64<<10 + 1, 300 << 10}, w.env.Sizes...)
}

// sendSizes: ibv_post_send(3), IBV_WR_SEND and IBV_WR_SEND_WITH_IMM.
func sendSizes(w *world, op verbs.Opcode) {
	a, b, sizes := w.sizedPair()
	for i, n := range sizes {
		pattern(a.mem[:n], byte(i))
		clear(b.mem)
		b.recv(verbs.WRID(i), 13, n)
		wr := a.send(verbs.WRID(100+i), 7, n)
		pattern(a.mem[7:7+n], byte(i))
		wr.Op, wr.Imm = op, 0x01020304+uint32(i)
		a.post(wr)
		if wc := a.expect(verbs.WRID(100+i), verbs.StatusOK); wc.Op != verbs.WCSend {
			w.Errorf("%v completes as %v", op, wc.Op)
		}
		wc := b.expect(verbs.WRID(i), verbs.StatusOK)
		if wc.Op != verbs.WCRecv || wc.Len != uint32(n) || wc.HasImm != (op == verbs.OpSendImm) || wc.HasImm && wc.Imm != wr.Imm {
			w.Errorf("%v of %d bytes with imm %#x is received as %+v", op, n, wr.Imm, wc)
		}
		w.memoryIs(b.mem, 13, a.mem[7:7+n], 0)
	}
}

// writeSizes: ibv_post_send(3), IBV_WR_RDMA_WRITE and IBV_WR_RDMA_WRITE_WITH_IMM.
func writeSizes(w *world, op verbs.Opcode) {
	a, b, sizes := w.sizedPair()
	for i, n := range sizes {
		pattern(a.mem[7:7+n], byte(i))
		clear(b.mem)
		if op == verbs.OpWriteImm {
			b.recv(verbs.WRID(i), 0, 0)
		}
		wr := a.to(b, verbs.WRID(100+i), op, 7, n, 13)
		wr.Imm = 0xf1020304 + uint32(i)
		a.post(wr)
		if wc := a.expect(verbs.WRID(100+i), verbs.StatusOK); wc.Op != verbs.WCWrite {
			w.Errorf("%v completes as %v", op, wc.Op)
		}
		if op == verbs.OpWriteImm {
			wc := b.expect(verbs.WRID(i), verbs.StatusOK)
			if wc.Op != verbs.WCRecvWrite || !wc.HasImm || wc.Imm != wr.Imm || wc.Len != uint32(n) {
				w.Errorf("%v of %d bytes with imm %#x is received as %+v", op, n, wr.Imm, wc)
			}
		}
		w.memoryIs(b.mem, 13, a.mem[7:7+n], 0)
	}
	if op == verbs.OpWrite {
		b.noCompletion()
	}
}

// readSizes: ibv_post_send(3), IBV_WR_RDMA_READ.
func readSizes(w *world) {
	a, b, sizes := w.sizedPair()
	// The source keeps its bytes: a request that was sent again is answered again, also after the
	// read has completed, so a device may look at the source until the case ends.
	pattern(b.mem, 1)
	// The responder has sent before, as in most connections: a device may derive from it
	// how to send responses.
	b.post(b.to(a, 1000, verbs.OpWrite, 0, 300<<10, 0))
	b.expect(1000, verbs.StatusOK)
	for i, n := range sizes {
		clear(a.mem)
		a.post(a.to(b, verbs.WRID(i), verbs.OpRead, 7, n, 13))
		if wc := a.expect(verbs.WRID(i), verbs.StatusOK); wc.Op != verbs.WCRead {
			w.Errorf("a read completes as %v", wc.Op)
		}
		w.memoryIs(a.mem, 7, b.mem[13:13+n], 0)
	}
	b.noCompletion()
}

// readsInARow posts more reads than can be outstanding: the queue pair delays the others
// (specification, volume 1, 9.4.5).
func readsInARow(w *world) {
	a, b := w.pair()
	pattern(b.mem, 1)
	const n = 1000
	var wrs []verbs.SendWR
	for i := range 20 {
		wrs = append(wrs, a.to(b, verbs.WRID(i), verbs.OpRead, i*n, n, i*n))
	}
	a.post(wrs...)
	for i := range wrs {
		a.expect(verbs.WRID(i), verbs.StatusOK)
	}
	if !bytes.Equal(a.mem[:20*n], b.mem[:20*n]) {
		w.Error("the reads returned wrong bytes")
	}
}

// fenceWaits: a fenced request starts after earlier reads have completed (specification,
// volume 1, 10.8.3.3), so it can send what they returned.
func fenceWaits(w *world) {
	a, b := w.pair()
	const n = 100 << 10
	pattern(b.mem[:n], 3)
	b.recv(1, 2*n, n)
	read := a.to(b, 2, verbs.OpRead, 0, n, 0)
	send := a.send(3, 0, n)
	send.Fence = true
	a.post(read, send)
	a.expect(2, verbs.StatusOK)
	a.expect(3, verbs.StatusOK)
	b.expect(1, verbs.StatusOK)
	if !bytes.Equal(b.mem[2*n:3*n], b.mem[:n]) {
		w.Error("the fenced send overtook the read")
	}
}

// atomics: ibv_post_send(3), IBV_WR_ATOMIC_CMP_AND_SWP and
// IBV_WR_ATOMIC_FETCH_AND_ADD: 8 bytes in host byte order.
func atomics(w *world) {
	a, b := w.pair()
	at := b.mem[64:72]
	was := func() uint64 { return binary.NativeEndian.Uint64(a.mem[8:16]) }
	is := func() uint64 { return binary.NativeEndian.Uint64(at) }
	binary.NativeEndian.PutUint64(at, 1000)

	add := a.to(b, 1, verbs.OpFetchAdd, 8, 8, 64)
	add.Add = 234
	a.post(add)
	if wc := a.expect(1, verbs.StatusOK); wc.Op != verbs.WCAtomic || was() != 1000 || is() != 1234 {
		w.Errorf("after FETCH_AND_ADD 234 to 1000: %v, was %d, is %d", wc.Op, was(), is())
	}
	swap := a.to(b, 2, verbs.OpCompareSwap, 8, 8, 64)
	swap.Compare, swap.Swap = 1234, 77
	a.post(swap)
	a.expect(2, verbs.StatusOK)
	if was() != 1234 || is() != 77 {
		w.Errorf("after CMP_AND_SWP of 1234: was %d, is %d", was(), is())
	}
	a.post(swap)
	a.expect(2, verbs.StatusOK)
	if was() != 77 || is() != 77 {
		w.Errorf("after CMP_AND_SWP of another value: was %d, is %d", was(), is())
	}
}

// inline: the post copies the bytes, which need no registration (ibv_post_send(3),
// IBV_SEND_INLINE).
func inline(w *world) {
	a, b := w.pair()
	if a.qp.MaxInline() < a.params.inline {
		w.Fatalf("asked for %d bytes inline, got %d", a.params.inline, a.qp.MaxInline())
	}
	for _, n := range []int{0, 1, a.qp.MaxInline()} {
		clear(b.mem)
		b.recv(1, 0, 4096)
		heap := make([]byte, n)
		pattern(heap, byte(n))
		want := bytes.Clone(heap)
		write := a.to(b, 3, verbs.OpWrite, 0, 0, 8192)
		write.SGL, write.Inline = nil, heap
		a.post(verbs.SendWR{ID: 2, Op: verbs.OpSend, Signaled: true, Inline: heap}, write)
		clear(heap)
		a.expect(2, verbs.StatusOK)
		a.expect(3, verbs.StatusOK)
		if wc := b.expect(1, verbs.StatusOK); wc.Len != uint32(n) {
			w.Errorf("%d bytes inline are received as %d", n, wc.Len)
		}
		w.memoryIs(b.mem[:4096], 0, want, 0)
		w.memoryIs(b.mem[8192:], 0, want, 0)
	}
}

func inlineTooLong(w *world) {
	a, b := w.pair()
	n, err := a.qp.PostSend([]verbs.SendWR{{ID: 1, Op: verbs.OpSend, Inline: make([]byte, a.qp.MaxInline()+1)}})
	if n != 0 {
		w.Errorf("%d were accepted", n)
	}
	w.errorIs(err, verbs.ErrInvalid)
	_, err = a.pd.CreateQP(verbs.QPConfig{SendCQ: a.cq, RecvCQ: a.cq, MaxSend: 1, MaxRecv: 1, MaxInline: 1 << 20})
	if err == nil {
		w.Error("CreateQP accepts 1 MiB inline")
	}
	a.sendsTo(b)
}

// emptyWrite: an empty write needs no valid key (specification, volume 1, 9.7.5.2.4) and
// consumes no receive. Callers use it as a probe.
func emptyWrite(w *world) {
	a, b := w.pair()
	b.recv(7, 0, 8)
	a.post(verbs.SendWR{ID: 1, Op: verbs.OpWrite, Signaled: true, RemoteAddr: 0xdead, RKey: 0xbeef})
	a.expect(1, verbs.StatusOK)
	b.noCompletion()
	a.post(a.send(2, 0, 8))
	a.expect(2, verbs.StatusOK)
	b.expect(7, verbs.StatusOK)
}

func emptySend(w *world) {
	a, b := w.pair()
	b.recv(7, 0, 0)
	a.post(verbs.SendWR{ID: 1, Op: verbs.OpSend, Signaled: true})
	a.expect(1, verbs.StatusOK)
	if wc := b.expect(7, verbs.StatusOK); wc.Len != 0 || wc.Op != verbs.WCRecv {
		w.Errorf("received %+v", wc)
	}
}

func emptyWriteImm(w *world) {
	a, b := w.pair()
	b.recv(7, 0, 8)
	a.post(verbs.SendWR{ID: 1, Op: verbs.OpWriteImm, Signaled: true, Imm: 5})
	a.expect(1, verbs.StatusOK)
	if wc := b.expect(7, verbs.StatusOK); wc.Len != 0 || wc.Op != verbs.WCRecvWrite || !wc.HasImm || wc.Imm != 5 {
		w.Errorf("received %+v", wc)
	}
}

// scatterGather: SGEs are gathered and scattered in the order of their lists, at any
// boundaries.
func scatterGather(w *world) {
	a, b := w.pair()
	pattern(a.mem[:50000], 1)
	var want []byte
	want = append(want, a.mem[1000:1010]...)
	want = append(want, a.mem[20000:29000]...)
	want = append(want, a.mem[3:4]...)
	gather := []verbs.SGE{a.sge(1000, 10), a.sge(20000, 9000), a.sge(3, 1)}
	if _, err := b.qp.PostRecv([]verbs.RecvWR{{ID: 1, SGL: []verbs.SGE{b.sge(100, 4097), b.sge(90000, 1), b.sge(50000, 8000)}}}); err != nil {
		w.Fatal(err)
	}
	a.post(verbs.SendWR{ID: 2, Op: verbs.OpSend, Signaled: true, SGL: gather})
	a.expect(2, verbs.StatusOK)
	if wc := b.expect(1, verbs.StatusOK); wc.Len != uint32(len(want)) {
		w.Errorf("received %d bytes of %d", wc.Len, len(want))
	}
	got := append([]byte(nil), b.mem[100:100+4097]...)
	got = append(got, b.mem[90000])
	got = append(got, b.mem[50000:50000+len(want)-4098]...)
	if !bytes.Equal(got, want) {
		w.Error("a send arrives with wrong bytes")
	}
	wr := a.to(b, 3, verbs.OpWrite, 0, 0, 200000)
	wr.SGL = gather
	a.post(wr)
	a.expect(3, verbs.StatusOK)
	w.memoryIs(b.mem[200000:], 0, want, 0)
	if w.unsupported(Reads) {
		return
	}
	wr = a.to(b, 4, verbs.OpRead, 0, 0, 200000)
	wr.SGL = []verbs.SGE{a.sge(300000, 4096), a.sge(400000, 4097), a.sge(500000, len(want)-8193)}
	a.post(wr)
	a.expect(4, verbs.StatusOK)
	got = append([]byte(nil), a.mem[300000:304096]...)
	got = append(got, a.mem[400000:404097]...)
	got = append(got, a.mem[500000:500000+len(want)-8193]...)
	if !bytes.Equal(got, want) {
		w.Error("a read arrives with wrong bytes")
	}
}

func tooManyElements(w *world) {
	a, b := w.pair()
	limit := a.n.dev.Info().Limits.SGEs
	sgl := make([]verbs.SGE, limit+1)
	for i := range sgl {
		sgl[i] = a.sge(i, 1)
	}
	n, err := a.qp.PostSend([]verbs.SendWR{{Op: verbs.OpSend, SGL: sgl}})
	if n != 0 {
		w.Errorf("%d sends were accepted", n)
	}
	w.errorIs(err, verbs.ErrInvalid)
	n, err = a.qp.PostRecv([]verbs.RecvWR{{SGL: sgl}})
	if n != 0 {
		w.Errorf("%d receives were accepted", n)
	}
	w.errorIs(err, verbs.ErrInvalid)
	a.sendsTo(b)
}

func shorter(w *world) {
	a, b := w.pair()
	pattern(a.mem[:10], 1)
	b.recv(1, 0, 1000)
	a.post(a.send(2, 0, 10))
	a.expect(2, verbs.StatusOK)
	if wc := b.expect(1, verbs.StatusOK); wc.Len != 10 {
		w.Errorf("received %d bytes of 10", wc.Len)
	}
	w.memoryIs(b.mem, 0, a.mem[:10], 0)
}

// inOrder: a responder executes requests in the order of posting, and each queue completes
// them in that order (specification, volume 1, 9.5 and 10.8.5).
func inOrder(w *world) {
	a, b := w.pair()
	const rounds = 200
	recv, sent, got := 0, 0, 0
	for got < rounds {
		for recv < rounds && recv < got+32 {
			b.recv(verbs.WRID(recv), 4096*(recv%32), 4096)
			recv++
		}
		for sent < recv && sent < got+16 {
			// The message must find the number that the write before it stored.
			binary.LittleEndian.PutUint32(a.mem[1000+4*(sent%32):], uint32(sent))
			write := a.to(b, 0, verbs.OpWrite, 1000+4*(sent%32), 4, memorySize-4)
			write.Signaled = false
			send := a.send(verbs.WRID(sent), 1000+4*(sent%32), 4)
			a.post(write, send)
			a.expect(verbs.WRID(sent), verbs.StatusOK)
			sent++
			if sent%3 == 0 {
				break
			}
		}
		for got < sent {
			b.expect(verbs.WRID(got), verbs.StatusOK)
			if n := binary.LittleEndian.Uint32(b.mem[4096*(got%32):]); n != uint32(got) {
				w.Fatalf("message %d contains %d", got, n)
			}
			if n := binary.LittleEndian.Uint32(b.mem[memorySize-4:]); n < uint32(got) {
				w.Fatalf("at message %d the write before it has not arrived, but that of %d", got, n)
			}
			got++
		}
	}
}

// contentBeforeImm: the content of a WRITE_WITH_IMM and of the writes before it is in memory
// when the receive completes (specification, volume 1, 9.5).
func contentBeforeImm(w *world) {
	a, b := w.pair()
	const n = 40 << 10
	for i := range 100 {
		pattern(a.mem[:2*n], byte(i))
		b.recv(1, 0, 0)
		first := a.to(b, 0, verbs.OpWrite, 0, n, 0)
		first.Signaled = false
		last := a.to(b, 2, verbs.OpWriteImm, n, n, n)
		last.Imm = uint32(i)
		a.post(first, last)
		if wc := b.expect(1, verbs.StatusOK); wc.Imm != uint32(i) {
			w.Fatalf("imm %d, want %d", wc.Imm, i)
		}
		if !bytes.Equal(b.mem[:2*n], a.mem[:2*n]) {
			w.Fatalf("round %d: the content is not in memory", i)
		}
		a.expect(2, verbs.StatusOK)
	}
}

// manyAtOnce posts many long writes in one batch.
func manyAtOnce(w *world) {
	a, b := w.pair()
	pattern(a.mem, 9)
	const n = memorySize / 32
	var wrs []verbs.SendWR
	for i := range 32 {
		wrs = append(wrs, a.to(b, verbs.WRID(i), verbs.OpWrite, i*n, n, i*n))
	}
	a.post(wrs...)
	for i := range wrs {
		a.expect(verbs.WRID(i), verbs.StatusOK)
	}
	if !bytes.Equal(a.mem, b.mem) {
		w.Error("the writes stored wrong bytes")
	}
}
