package verbstest

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/internal/rc"
)

// The operations of a program: one byte each, followed by a parameter byte.
const (
	opWrite = iota
	opWriteImm
	opSend
	opRead
	opAdd
	opRecv
	opWait
	opPoll
	opCut
	opRestore
	opHold
	opRelease
	opLoss
	opLatency
	opBandwidth
	opPort
	opBreak
	opKinds
)

// modelSizes are the lengths of the work requests, around the segment size.
var modelSizes = []int{0, 1, 8, 4096, segmentSize - 1, segmentSize, segmentSize + 1, 2*segmentSize + 77}

const (
	modelSlot = 3 * segmentSize // bytes of memory per work request
	modelWRs  = 20              // maximum work requests of a program
)

// prediction is the result of a work request that the model expects.
type prediction struct {
	op   verbs.Opcode
	id   verbs.WRID
	read []byte // content that a read or atomic returns at its slot; nil: any
	slot int
	from int // offset of a read in the peer's memory
}

// clearOverlappingReads clears the expected content of reads that a later write overlaps: a
// retransmitted read returns the memory of that time (specification, volume 1, 9.4.4 and
// table 76). A fenced write waits for the reads.
func clearOverlappingReads(sent []prediction, at, n int, fence bool) {
	for i := range sent {
		if r := &sent[i]; r.op == verbs.OpRead && !fence && at < r.from+len(r.read) && r.from < at+n {
			r.read = nil
		}
	}
}

// FuzzModel runs programs of posts and faults and compares the results with a model that
// executes each request at once. With unlimited retries all requests succeed, once, in
// order, with the same bytes. If the program breaks the queue pair, a prefix of the requests
// succeeds and the rest is flushed.
func FuzzModel(f *testing.F) {
	f.Add([]byte{opWrite, 3, opWriteImm, 6, opRecv, 1, opPoll, 0})
	f.Add([]byte{opLoss, 9, opWrite, 7, opRead, 7, opAdd, 0, opSend, 5, opWait, 3})
	f.Add([]byte{opHold, 0, opWrite, 6, opWait, 200, opRelease, 0, opWrite, 7, opPoll, 0})
	f.Add([]byte{opLatency, 5, opCut, 0, opAdd, 0, opWait, 250, opRestore, 0, opRead, 6, opBreak, 0})
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // a test's
	for range 60 {
		program := make([]byte, 60)
		for i := range program {
			program[i] = byte(random.Uint32())
		}
		f.Add(program)
	}
	f.Fuzz(func(t *testing.T, program []byte) {
		synctest.Test(t, func(t *testing.T) { runModel(t, program[:min(len(program), 200)]) })
	})
}

func runModel(t *testing.T, program []byte) {
	f := NewFabric(Options{Seed: 1})
	a, b := newSide(t, f, "a"), newSide(t, f, "b")
	for _, s := range []*side{a, b} {
		s.mr.Close()
		s.mem = make([]byte, modelSlot*modelWRs)
		var err error
		s.mr, err = s.pd.RegisterMemory(s.mem, verbs.AccessLocalWrite|verbs.AccessRemoteWrite|verbs.AccessRemoteRead|verbs.AccessRemoteAtomic)
		if err != nil {
			t.Fatal(err)
		}
	}
	defer func() {
		a.close()
		b.close()
		f.Close()
	}()
	p := sidePath
	p.Retry, p.RNRRetry, p.ReadAtomic, p.Timeout = retryUnlimited, rc.RNRUnlimited, 2, 10
	for _, s := range [][2]*side{{a, b}, {b, a}} {
		if err := p.Connect(s[0].qp, s[0].psn, s[1].endpoint()); err != nil {
			t.Fatal(err)
		}
	}
	there, back := f.OneWay("a", "b"), f.OneWay("b", "a")

	model := make([]byte, len(b.mem)) // b's memory after all posted requests
	var sent []prediction
	var messages []uint32 // immediate data of the requests that consume a receive
	var got []verbs.WC    // a's completions
	var received []verbs.WC
	recvs, broken, polls := 0, false, 0
	poll := func() {
		var wcs [8]verbs.WC
		for _, s := range []*side{a, b} {
			n, err := s.cq.Poll(wcs[:])
			if err != nil {
				t.Fatal(err)
			}
			if s == a {
				got = append(got, wcs[:n]...)
			} else {
				received = append(received, wcs[:n]...)
			}
		}
		polls++
	}
	for i := 0; i+1 < len(program); i += 2 {
		op, arg := program[i]%opKinds, program[i+1]
		switch op {
		case opWrite, opWriteImm, opSend, opRead, opAdd:
			if len(sent) == modelWRs {
				continue
			}
			k := len(sent)
			n := modelSizes[int(arg)%len(modelSizes)]
			at := modelSlot * (int(arg>>3) % modelWRs)
			here := modelSlot * k
			wr := a.write(verbs.WRID(k), b, here, n)
			wr.RemoteAddr = b.mr.Addr() + uint64(at)
			what := prediction{id: verbs.WRID(k), slot: here}
			switch op {
			case opWrite, opWriteImm:
				wr.Fence = arg&0x80 != 0
				clearOverlappingReads(sent, at, n, wr.Fence)
				fill(a.mem[here:here+n], arg+byte(k))
				copy(model[at:], a.mem[here:here+n])
				if op == opWriteImm {
					wr.Op, wr.Imm = verbs.OpWriteImm, uint32(k)
					messages = append(messages, wr.Imm)
				}
			case opSend:
				wr.Op, wr.Imm = verbs.OpSendImm, uint32(k)
				messages = append(messages, wr.Imm)
				wr.SGL = nil // receives have no memory in the model
			case opRead:
				wr.Op, wr.Fence = verbs.OpRead, arg&0x80 != 0
				what.read, what.from = bytes.Clone(model[at:at+n]), at
			case opAdd:
				wr.Op, wr.Add = verbs.OpFetchAdd, uint64(arg)+1
				wr.SGL[0].Length = 8
				clearOverlappingReads(sent, at, 8, false)
				what.read = bytes.Clone(model[at : at+8])
				binary.NativeEndian.PutUint64(model[at:], binary.NativeEndian.Uint64(model[at:])+wr.Add)
			}
			what.op = wr.Op
			sent = append(sent, what)
			a.post(wr)
		case opRecv:
			if recvs < modelWRs {
				b.recv(verbs.WRID(recvs), 0, 0)
				recvs++
			}
		case opWait:
			time.Sleep(time.Duration(arg) * 100 * time.Microsecond)
		case opPoll:
			poll()
		case opCut:
			[]*Wires{there, back}[arg%2].Cut()
		case opRestore:
			there.Restore()
			back.Restore()
		case opHold:
			[]*Wires{there, back}[arg%2].Hold()
		case opRelease:
			there.Release()
			back.Release()
		case opLoss:
			[]*Wires{there, back}[arg%2].SetLoss(float64(arg%8) / 100)
		case opLatency:
			[]*Wires{there, back}[arg%2].SetLatency(time.Duration(arg) * 10 * time.Microsecond)
		case opBandwidth:
			[]*Wires{there, back}[arg%2].SetBandwidth(int64(arg) << 20)
		case opPort:
			n := f.Host([]string{"a", "b"}[arg%2]).NIC("mem0")
			n.PortDown(1)
			time.Sleep(time.Duration(arg) * time.Microsecond)
			n.PortUp(1)
		case opBreak:
			if i > len(program)/2 && !broken {
				broken = true
				if err := a.qp.ToErr(); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	// All faults end, and a receive is posted for each message.
	for _, l := range []*Wires{there, back} {
		l.Restore().Release().SetLoss(0)
	}
	for ; recvs < modelWRs; recvs++ {
		b.recv(verbs.WRID(recvs), 0, 0)
	}
	for range 1000 {
		if poll(); len(got) == len(sent) && (broken || len(received) == len(messages)) {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	time.Sleep(time.Second)
	poll()

	// Each request completes once, in order.
	if len(got) != len(sent) {
		t.Fatalf("%d of %d work requests ended", len(got), len(sent))
	}
	well := len(got)
	for i, wc := range got {
		switch {
		case wc.ID != sent[i].id:
			t.Fatalf("completion %d is of work request %d", i, wc.ID)
		case wc.Status == verbs.StatusOK && i > well:
			t.Fatalf("work request %d ended well, and %d did not", i, well)
		case wc.Status == verbs.StatusFlushed && broken:
			well = min(well, i)
		case wc.Status != verbs.StatusOK:
			t.Fatalf("work request %d ends with %v", i, wc.Status)
		}
	}
	for i, what := range sent[:well] {
		if what.read != nil && !bytes.Equal(a.mem[what.slot:what.slot+len(what.read)], what.read) {
			t.Fatalf("work request %d, %v, brought other bytes than the model", i, what.op)
		}
	}
	for i, wc := range received {
		if i >= len(messages) || wc.Status != verbs.StatusOK || wc.ID != verbs.WRID(i) || wc.Imm != messages[i] {
			t.Fatalf("received %+v as message %d; the imms are %v", wc, i, messages)
		}
	}
	if broken {
		return
	}
	if len(received) != len(messages) {
		t.Fatalf("%d of %d messages were received", len(received), len(messages))
	}
	if !bytes.Equal(b.mem, model) {
		for i := range model {
			if b.mem[i] != model[i] {
				t.Fatalf("byte %d is %d, the model has %d", i, b.mem[i], model[i])
			}
		}
	}
}
