package verbstransport_test

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/internal/wire"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	verbstransport "github.com/tryst-rdma/tryst/transport/verbs"
	"github.com/tryst-rdma/tryst/transport/verbs/internal/regmem"
	"github.com/tryst-rdma/tryst/verbs/verbstest"
)

// TestV02MetaOnFirstUseAndOnChange: META and REREQUEST are sent for a tensor that is
// transferred by writes if the receiver does not know its meta-data, and otherwise not.
func TestV02MetaOnFirstUseAndOnChange(t *testing.T) {
	o, spies := watched(clusterOptions{})
	s := newStage(t, o)
	from, to := s.pair()
	k := from.key(to, "v")
	for i, c := range []struct {
		dims []int64
		meta int
	}{{[]int64{100, 1000}, 1}, {[]int64{100, 1000}, 0}, {[]int64{1000, 100}, 1}, {[]int64{1000, 100}, 0}, {[]int64{100, 999}, 1}} {
		spies.of(from).tally()
		spies.of(to).tally()
		step, seed := int64(i+1), uint64(i)
		from.send(step, k, s.shaped(from.transport.Allocator(), seed, tensor.Uint8, c.dims...))
		x := to.recv(step, k).value()
		if got := x.Shape().Dims(); fmt.Sprint(got) != fmt.Sprint(c.dims) || !isNoise(x.Bytes(), seed) {
			t.Errorf("step %d: another tensor came: %v", step, x)
		}
		x.Release()
		sent, requester := spies.of(from).tally(), spies.of(to).tally()
		if requester.Kinds[wire.KindRequest] != 1 || sent.Kinds[wire.KindMeta] != c.meta || requester.Kinds[wire.KindReRequest] != c.meta || sent.Imms != 1 {
			t.Errorf("step %d: requester %+v, responder %+v; want one REQUEST, %d META and REREQUEST, one last write", step, requester, sent, c.meta)
		}
	}
}

// TestV03SteadyStateOfALargeTensor: a large tensor takes exactly one REQUEST and its
// writes. Other messages only acknowledge or return credits, when no message can carry
// that. Nothing is registered, and allocations do not grow with the size.
func TestV03SteadyStateOfALargeTensor(t *testing.T) {
	const chunk, steps = 64 * kib, 60
	perReceive := func(size int) uint64 {
		o, spies := watched(tuned(clusterOptions{}, func(o *verbstransport.Options) {
			o.Chunk, o.Outstanding = chunk, 4*mib
			o.Memory.Arena, o.Memory.LateWrite = 32*mib, nil // LateWrite would read every byte
		}))
		s := newStage(t, o)
		from, to := s.pair()
		third := s.start(2) // a receive from it would register memory for its messages
		third.meets(from)
		third.meets(to)
		k := from.key(to, "v")
		x := s.blob(from.transport.Allocator(), 1, size)
		defer x.Release()
		step := int64(0)
		round := func() {
			step++
			from.send(step, k, x.Retain())
			to.recv(step, k).isBlob(1, size)
			for _, a := range []*actor{from, to} {
				a.manager.Cleanup(step)
			}
		}
		for range 3 {
			round()
		}
		spies.of(from).tally()
		spies.of(to).tally()
		registered, memory := to.host().Sent().Registrations+from.host().Sent().Registrations, to.transport.Memory()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range steps {
			round()
		}
		runtime.ReadMemStats(&after)

		requester, sent := spies.of(to).tally(), spies.of(from).tally()
		for kind := wire.KindHello; kind <= wire.KindUnknown; kind++ {
			a, b := requester.Kinds[kind], sent.Kinds[kind]
			switch kind {
			case wire.KindRequest:
				if a != steps || b != 0 {
					t.Errorf("%d REQUESTs for %d receives, and %d the other way", a, steps, b)
				}
			case wire.KindAck: // when no request followed within 5 ms, or the peer kept 1 MiB
				if a > steps+1 || b != 0 { // one of the previous round may be late
					t.Errorf("%d ACK for %d receives, and %d the other way", a, steps, b)
				}
			case wire.KindCredit: // after half a window, or when ACK requests counts
				if a > steps/(verbstransport.DefaultWindow/2)+1 || b > steps+steps/(verbstransport.DefaultWindow/2)+1 {
					t.Errorf("%d and %d CREDITs for %d receives", a, b, steps)
				}
			default:
				if a+b != 0 {
					t.Errorf("%d %v from the requester and %d from the responder", a, kind, b)
				}
			}
		}
		if want := steps * ((size - 1) / chunk); sent.Writes != want || sent.Imms != steps || requester.Writes+requester.Imms != 0 || sent.Bytes != uint64(steps*size) {
			t.Errorf("content of %d bytes went by %+v, want %d writes and %d last ones", size, sent, want, steps)
		}
		if n := to.host().Sent().Registrations + from.host().Sent().Registrations; n != registered {
			t.Errorf("%d memory regions were registered", n-registered)
		}
		if m := to.transport.Memory(); m.Receiving.Grown != memory.Receiving.Grown {
			t.Errorf("the pool grew: %+v, before %+v", m, memory)
		}
		if m := from.transport.Memory(); m.Copies != 0 {
			t.Errorf("%d tensors of registered memory were copied", m.Copies)
		}
		return (after.TotalAlloc - before.TotalAlloc) / steps
	}
	small, large := perReceive(128*kib+1), perReceive(2*mib-1000)
	t.Logf("%d bytes are allocated for a receive of 128 KiB, %d for one of 2 MiB", small, large)
	if large > 2*small+64*kib {
		t.Errorf("a receive of 128 KiB allocates %d bytes, one of 2 MiB %d", small, large)
	}
}

// TestFinishedComesSoon: the memory of a large tensor is released long before the 5 ms are over in which
// a request can carry the ACK of a small one.
func TestFinishedComesSoon(t *testing.T) {
	s := newStage(t, clusterOptions{require: true})
	from, to := s.pair()
	// The machine may be busy, so it is tried until it is not.
	least := func(size int, most time.Duration) time.Duration {
		least := time.Hour
		for i := 0; i < 20 || i < 300 && least >= most; i++ {
			k := from.key(to, fmt.Sprint(size, "/", i))
			from.sendsBlob(1, k, 1, size)
			x := to.recv(1, k).value()
			ended := time.Now()
			for from.kept.Stats().Kept > 0 && time.Since(ended) < waitLimit {
				runtime.Gosched()
			}
			least = min(least, time.Since(ended))
			x.Release()
		}
		return least
	}
	const most, mostSmall = 4 * time.Millisecond, 9 * time.Millisecond
	if large, small := least(2*mib, most), least(100, mostSmall); large >= most || small >= mostSmall {
		t.Errorf("2 MiB were kept for %v after a receive, 100 bytes for %v", large, small)
	}
}

// TestV04V05NoContentTakesNoMemory: dead and empty values come in a message, in the order
// of their key, and take no memory.
func TestV04V05NoContentTakesNoMemory(t *testing.T) {
	o, spies := watched(clusterOptions{})
	s := newStage(t, o)
	from, to := s.pair()
	k := from.key(to, "v")
	from.sendsBlob(1, k, 1, 100*kib)
	if err := from.in(1).Send(k, rendezvous.Args{}, nil, true); err != nil {
		t.Fatal(err)
	}
	empty, err := tensor.FromBytes(tensor.Float64, tensor.Vector(0), nil)
	if err != nil {
		t.Fatal(err)
	}
	from.send(1, k, empty)
	from.sendsBlob(1, k, 2, 100*kib)
	to.recv(1, k).isBlob(1, 100*kib)
	spies.of(from).tally()
	spies.of(to).tally()
	if o := to.recv(1, k).wait(); o.err != nil || !o.value.Dead {
		t.Errorf("the second value is %+v, want a dead one", o)
	} else {
		o.value.Tensor.Release()
	}
	if x := to.recv(1, k).value(); x.DType() != tensor.Float64 || x.Size() != 0 {
		t.Errorf("the third value is %v, want an empty one", x)
	} else {
		x.Release()
	}
	if sent := spies.of(from).tally(); sent.Kinds[wire.KindEager] != 2 || sent.Kinds[wire.KindMeta] != 0 || sent.Writes+sent.Imms != 0 {
		t.Errorf("they came by %+v, want two EAGERs", sent)
	}
	s.until("the early destinations are given back", func() bool { return to.transport.Memory().Receiving.InUse == 0 })
	to.recv(1, k).isBlob(2, 100*kib)
}

// TestV09LongKeys: keys longer than TensorFlow's limit of 512 bytes work. A key that is
// longer than a message takes gRPC, or ends with a status if gRPC is not allowed.
func TestV09LongKeys(t *testing.T) {
	for _, require := range []bool{false, true} {
		t.Run(fmt.Sprint("require=", require), func(t *testing.T) {
			s := newStage(t, clusterOptions{require: require})
			from, to := s.pair()
			long := from.key(to, strings.Repeat("n", 3000))
			from.sendsBlob(1, long, 1, 100*kib)
			to.recv(1, long).isBlob(1, 100*kib)
			if k := to.connection(from); k.Stats.Received != 1 || k.Stats.Fallbacks() != 0 {
				t.Errorf("a key of 3000 bytes: %+v, want it over verbs", k.Stats)
			}
			longer := from.key(to, strings.Repeat("n", 100_000))
			from.sendsBlob(1, longer, 2, 100*kib)
			r := to.recv(1, longer)
			if require {
				r.fails(status.ResourceExhausted, "rendezvous key of 100", "the setting fallback is none")
			} else {
				r.isBlob(2, 100*kib)
			}
			if k := to.connection(from); k.Stats.Received != 1 || k.Stats.Fallbacks() != 1 || !k.Verbs || k.Stats.Breaks != 0 {
				t.Errorf("a key of 100 kB: %+v, want it elsewhere, and the channel still there", k)
			}
		})
	}
}

// TestV10OtherIncarnation: the key has an earlier incarnation of the device. The sender
// reports that over verbs, and the channel stays up.
func TestV10OtherIncarnation(t *testing.T) {
	s := newStage(t, clusterOptions{require: true})
	from, to := s.pair()
	const times = 5
	waited := 0
	for range times {
		sent := from.host().Sent().Writes
		to.recv(1, s.keyOf(from.task, from.incarnation+1, to.task, "v")).fails(status.Aborted, "incarnation", "restarted")
		if from.host().Sent().Writes != sent {
			waited++
		}
	}
	if waited == times {
		t.Error("each answer waited until a probe was posted, a second later")
	}
	k := from.key(to, "v")
	from.sendsBlob(1, k, 1, 100*kib)
	to.recv(1, k).isBlob(1, 100*kib)
	if l := to.connection(from); l.Stats.Breaks != 0 {
		t.Errorf("%+v, want no break", l)
	}
}

// TestV11StepAbortedAtTheSender: the receiver gets the status of the aborted step,
// whether the receive waits, comes later or is being written. The sender and the channel
// go on.
func TestV11StepAbortedAtTheSender(t *testing.T) {
	s := newStage(t, clusterOptions{require: true, path: patient})
	from, to := s.pair()
	failed := status.New(status.Internal, "the kernel of node mul failed")
	waits := to.recv(1, from.key(to, "v"))
	from.waiting(1)
	from.in(1).Abort(failed)
	waits.fails(status.Internal, "node mul")
	to.recv(1, from.key(to, "late")).fails(status.Internal, "node mul")

	k := from.key(to, "large")
	stuck := s.oneWay(from, to).HoldAfter(300 * kib)
	from.sendsBlob(2, k, 1, mib)
	r := to.recv(2, k)
	s.happens("the transfer is under way", stuck)
	from.in(2).Abort(failed)
	s.wires(from, to).Release()
	if o := r.wait(); o.err == nil {
		if !isNoise(o.value.Tensor.Bytes(), 1) {
			t.Error("what was on its way has come damaged")
		}
		o.value.Tensor.Release()
	} else if status.CodeOf(o.err) != status.Internal {
		t.Errorf("got the error %v, want the step's", o.err)
	}
	from.sendsBlob(3, k, 2, mib)
	to.recv(3, k).isBlob(2, mib)
	if l := to.connection(from); l.Stats.Breaks != 0 {
		t.Errorf("%+v, want no break", l)
	}
}

// TestV21LargerThan4GiB: lengths and offsets beyond 32 bits, from the sender's tensor to
// the receiver's. Only the pages with marks are allocated.
func TestV21LargerThan4GiB(t *testing.T) {
	const size = 4*gib + 4096 + 5
	s := newStage(t, tuned(clusterOptions{
		require: true, fabric: verbstest.Options{Devices: []verbstest.DeviceOptions{{NoGoMemory: true}}},
	}, func(o *verbstransport.Options) {
		o.Chunk, o.Outstanding = 256*mib, gib
		o.Memory = regmem.Options{Arena: 4 * mib, SendLimit: 8 * gib, RecvLimit: 8 * gib}
	}))
	from, to := s.pair()
	x, err := tensor.Allocate(from.transport.Allocator(), tensor.Uint8, tensor.Vector(size))
	if err != nil {
		t.Fatal(err)
	}
	marks := []int{0, 1<<31 - 1, 1 << 31, 1<<32 - 1, 1 << 32, 1<<32 + 4095, size - 1}
	for i, at := range marks {
		x.Bytes()[at] = byte(i + 1)
	}
	k := from.key(to, "v")
	for step := range int64(2) { // meta-data by META, then from the cache
		from.send(step+1, k, x.Retain())
		y := to.recv(step+1, k).value()
		if y.Size() != size {
			t.Fatalf("%v came", y)
		}
		marked := 0
		for i, at := range marks {
			if got := y.Bytes()[at]; got != byte(i+1) {
				t.Errorf("step %d: byte %d is %d, want %d", step+1, at, got, i+1)
			}
			page := y.Bytes()[at&^4095 : min(at&^4095+4096, size)]
			marked += len(page) - bytes.Count(page, []byte{0})
		}
		if want := len(marks) + 2; marked != want { // one page has two marks and was counted twice
			t.Errorf("step %d: %d bytes are set in the pages of the marks, want %d", step+1, marked, want)
		}
		y.Release()
		for _, a := range []*actor{from, to} {
			a.manager.Cleanup(step + 1)
		}
		from.keeps(0)
	}
	x.Release()
	if n := to.host().Sent().Registrations; n > 8 {
		t.Errorf("%d memory regions were registered", n)
	}
}

// TestV25InPlaceUpdateDuringASend: a kernel that updates a variable in place must hold
// the only reference. During the transfer it does not, so it updates a copy, and the
// receiver gets the complete value as of Send.
func TestV25InPlaceUpdateDuringASend(t *testing.T) {
	for _, where := range []string{"registered", "heap"} {
		t.Run(where, func(t *testing.T) {
			s := newStage(t, clusterOptions{require: true, path: patient})
			from, to := s.pair()
			alloc := tensor.Allocator(s.source)
			if where == "registered" {
				alloc = from.transport.Allocator()
			}
			k := from.key(to, "v")
			variable := s.blob(alloc, 1, mib)
			for round := range uint64(3) {
				stuck := s.oneWay(from, to).HoldAfter(300 * kib)
				from.send(int64(round)+1, k, variable.Retain())
				r := to.recv(int64(round)+1, k)
				s.happens("the transfer is under way", stuck)
				if variable.Buffer().Unique() && where == "registered" {
					t.Fatal("the variable may be written to while it is sent")
				}
				next := variable
				if !variable.Buffer().Unique() { // as a kernel that updates in place if it may
					var err error
					if next, err = variable.Clone(alloc); err != nil {
						t.Fatal(err)
					}
				}
				_, _ = noise(round + 2).Read(next.Bytes()) // never fails
				if next != variable {
					variable.Release()
					variable = next
				}
				s.wires(from, to).Release()
				r.isBlob(round+1, mib)
				from.keeps(0)
			}
			s.until("the variable is its owner's alone", variable.Buffer().Unique)
			variable.Release()
		})
	}
}

// TestV26TwoStepsWithTwoShapesForOneKey: each step gets its own value, although the
// receiver expects the shape that came last for the key.
func TestV26TwoStepsWithTwoShapesForOneKey(t *testing.T) {
	o, spies := watched(clusterOptions{require: true})
	s := newStage(t, o)
	from, to := s.pair()
	k := from.key(to, "v")
	shapes := [][]int64{{300, 1000}, {100, 100, 10}, {4}, {1000, 300}}
	const rounds = 30
	for round := range rounds {
		var receives []*receiving
		for i := range shapes { // all are requested before any value is sent
			receives = append(receives, to.recv(int64(round*len(shapes)+i+1), k))
		}
		var sends sync.WaitGroup
		for i, dims := range shapes {
			step, seed := int64(round*len(shapes)+i+1), uint64(round*len(shapes)+i+1)
			x := s.shaped(from.transport.Allocator(), seed, tensor.Uint8, dims...)
			part := from.in(step)
			sends.Go(func() {
				defer x.Release()
				if err := part.Send(k, rendezvous.Args{}, x, false); err != nil {
					t.Error(err)
				}
			})
		}
		sends.Wait()
		for i, r := range receives {
			x := r.value()
			if fmt.Sprint(x.Shape().Dims()) != fmt.Sprint(shapes[i]) || !isNoise(x.Bytes(), uint64(round*len(shapes)+i+1)) {
				t.Errorf("round %d: step %d has got %v, want %v", round, i, x, shapes[i])
			}
			x.Release()
		}
	}
	if sent := spies.of(from).tally(); sent.Kinds[wire.KindMeta] == 0 {
		t.Errorf("%+v: no shape was ever another one than expected", sent)
	}
}

// TestShapeThatChangesEveryStep: a new shape costs one META in each step, leaves nothing
// behind, and each step gets its own value.
func TestShapeThatChangesEveryStep(t *testing.T) {
	o, spies := watched(clusterOptions{require: true})
	s := newStage(t, o)
	from, to := s.pair()
	k := from.key(to, "v")
	const steps = 60
	for step := range steps {
		size := 20*kib + (step*7919)%(200*kib)
		from.sendsBlob(int64(step+1), k, uint64(step), size)
		to.recv(int64(step+1), k).isBlob(uint64(step), size)
	}
	if sent := spies.of(from).tally(); sent.Kinds[wire.KindMeta] != steps || sent.Imms != steps {
		t.Errorf("%+v; want a META and a last write in each of %d steps", sent, steps)
	}
	s.until("no destination is left", func() bool { return to.transport.Memory().Receiving.InUse == 0 })
}

// TestStringsThatChangeAndFail: the memory of serialised strings is released at both ends
// when their size changes, when they are cancelled during the transfer, and when their
// step fails.
func TestStringsThatChangeAndFail(t *testing.T) {
	s := newStage(t, clusterOptions{require: true, path: patient})
	from, to := s.pair()
	k := from.key(to, "v")
	long := func(i int) *tensor.Tensor {
		x, err := tensor.FromStrings(tensor.Vector(2), []string{strings.Repeat("s", (i+1)*100*kib), "after"})
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	for i := range 6 {
		step := int64(i + 1)
		stuck := s.oneWay(from, to).HoldAfter(50 * kib)
		from.send(step, k, long(i))
		ctx, cancel := context.WithCancel(t.Context())
		r := to.recvCtx(ctx, step, k)
		s.happens("the transfer is under way", stuck)
		switch i % 3 {
		case 0:
			cancel()
			r.fails(status.Cancelled)
		case 1:
			to.in(step).Abort(status.New(status.Internal, "node mul"))
			r.fails(status.Internal)
		}
		s.wires(from, to).Release()
		if i%3 == 2 {
			x := r.value()
			if e := x.Elements(); len(e) != 2 || len(e[0]) != (i+1)*100*kib || e[1] != "after" {
				t.Errorf("%v came", x)
			}
			x.Release()
		}
		cancel()
	}
}

// TestWaitingRequestsAreBounded: the number of receives of one peer that wait on a
// channel is bounded.
func TestWaitingRequestsAreBounded(t *testing.T) {
	const most = 20
	s := newStage(t, tuned(clusterOptions{require: true}, func(o *verbstransport.Options) { o.MaxWaiting = most }))
	from, to := s.pair()
	var receives []*receiving
	for i := range most {
		receives = append(receives, to.recv(1, from.key(to, fmt.Sprint("v", i))))
	}
	from.waiting(most)
	to.recv(1, from.key(to, "beyond")).fails(status.ResourceExhausted, fmt.Sprint(most))
	for i, r := range receives {
		from.sendsBlob(1, from.key(to, fmt.Sprint("v", i)), uint64(i), 100)
		r.isBlob(uint64(i), 100)
	}
}
