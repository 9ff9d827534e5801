package verbstransport_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/tensor"
	verbstransport "github.com/tryst-rdma/tryst/transport/verbs"
)

// recvInto receives into dst and returns whether the device wrote there.
func (a *actor) recvInto(step int64, k rendezvous.Key, dst *tensor.Tensor) (zeroCopy bool) {
	a.s.Helper()
	into, err := rendezvous.NewInto(dst)
	if err != nil {
		a.s.Fatal(err)
	}
	v, err := a.in(step).Recv(a.s.Context(), k, into.Args())
	if err != nil {
		a.s.Fatal(err)
	}
	v.Tensor.Release()
	return into.ZeroCopy()
}

// TestIntoTakesOneRoundTrip: the type and shape of the receiver's own memory are known, so the
// first request under a key has its address, and no META is needed.
func TestIntoTakesOneRoundTrip(t *testing.T) {
	s := newStage(t, clusterOptions{require: true})
	from, to := s.pair()
	dst := s.blob(to.transport.ReceiveAllocator(), 9, 64*kib)
	defer dst.Release()
	from.sendsBlob(1, from.key(to, "first"), 1, 8)
	to.recv(1, from.key(to, "first")).isBlob(1, 8)
	// One message is the last write of the content. With META there would be two of each
	// value. A value that takes 5 ms can have a CREDIT beside it, so some values may have more.
	single := 0
	for i := uint64(0); single < 8; i++ {
		if i == 1000 {
			t.Fatalf("%d of %d values came with one message", single, i)
		}
		before := to.connection(from).Stats.MessagesReceived
		k := from.key(to, fmt.Sprint("v", i))
		from.sendsBlob(1, k, i, 64*kib)
		if !to.recvInto(1, k, dst) || !isNoise(dst.Bytes(), i) {
			t.Error("the device did not write the content into the memory")
		}
		if to.connection(from).Stats.MessagesReceived-before == 1 {
			single++
		}
	}
}

// TestIntoIsSentAgainWithoutACopy: memory of ReceiveAllocator is registered for both
// directions; what is not registered is copied once.
func TestIntoIsSentAgainWithoutACopy(t *testing.T) {
	s := newStage(t, clusterOptions{require: true})
	from, to := s.pair()
	dst := s.blob(to.transport.ReceiveAllocator(), 9, mib)
	defer dst.Release()
	k, back := from.key(to, "v"), to.key(from, "v")
	from.send(1, k, s.blob(from.transport.Allocator(), 1, mib))
	to.recvInto(1, k, dst)
	to.send(1, back, dst.Retain())
	from.recv(1, back).isBlob(1, mib)
	to.keeps(0)
	if n := to.transport.Memory().Copies + from.transport.Memory().Copies; n != 0 {
		t.Errorf("%d tensors were copied", n)
	}
	other := s.blob(s.source, 9, mib)
	defer other.Release()
	if !to.transport.Registered(dst) || to.transport.Registered(other) {
		t.Error("Registered is wrong")
	}
	s.until("the sent memory is its owner's alone", dst.Buffer().Unique)
	from.sendsBlob(2, k, 3, mib)
	if to.recvInto(2, k, other) || !isNoise(other.Bytes(), 3) {
		t.Error("memory that is not registered got another content, or without a copy")
	}
}

// TestIntoMemoryOfADeviceThatIsGone: it stays readable, and is received into with a copy.
func TestIntoMemoryOfADeviceThatIsGone(t *testing.T) {
	s := newStage(t, clusterOptions{})
	from, to := s.pair()
	dst := s.blob(to.transport.ReceiveAllocator(), 9, mib)
	defer dst.Release()
	k := from.key(to, "v")
	to.nic().Remove()
	s.until("the device is known to be gone", func() bool { _, err := to.transport.Device(); return err != nil })
	if to.transport.Registered(dst) {
		t.Error("memory of a device that is gone is registered")
	}
	from.sendsBlob(1, k, 1, mib)
	if to.recvInto(1, k, dst) || !isNoise(dst.Bytes(), 1) {
		t.Error("another content, or without a device")
	}
	x, err := to.transport.ReceiveAllocator().Allocate(mib)
	if err != nil {
		t.Fatalf("without a device: %v", err)
	}
	x.Release()
}

// TestIntoMemoryIsThatOfTheRoute: devices with windows and hardware receive into memory apart.
// ReceiveAllocator gives that of the device that reaches the peer, so nothing is copied.
func TestIntoMemoryIsThatOfTheRoute(t *testing.T) {
	for name, users := range map[string]uint64{"shm": 0, "rdma": 1} {
		t.Run(name, func(t *testing.T) {
			o := sideBySide()
			o.hardware = true
			o.tune = func(task cluster.Task, o *verbstransport.Options) {
				o.User, o.Backoff = 1+users*uint64(task.Index), gateBackoff //nolint:gosec // 0 or 1
			}
			s := newStage(t, o)
			from, to := s.pair()
			from.overRoute(to, name)
			dst := s.blob(to.transport.ReceiveAllocator(), 9, mib)
			defer dst.Release()
			k := from.key(to, "v")
			from.sendsBlob(1, k, 1, mib)
			if !to.recvInto(1, k, dst) || !isNoise(dst.Bytes(), 1) {
				t.Error("the content was copied, or is another one")
			}
			if !to.transport.Registered(dst) {
				t.Error("the memory is not registered")
			}
		})
	}
}

// TestIntoWithoutRoomForDestinations: the receiver's own memory takes nothing of the pool, so
// it is written to although the pool is full.
func TestIntoWithoutRoomForDestinations(t *testing.T) {
	s := newStage(t, tuned(clusterOptions{require: true}, func(o *verbstransport.Options) {
		o.Memory.Arena, o.Memory.RecvLimit = mib, mib
	}))
	from, to := s.pair()
	dst := s.blob(to.transport.ReceiveAllocator(), 9, mib) // all of it
	defer dst.Release()
	k := from.key(to, "v")
	for step := range int64(3) {
		from.sendsBlob(step+1, k, uint64(step), mib)
		if !to.recvInto(step+1, k, dst) || !isNoise(dst.Bytes(), uint64(step)) {
			t.Errorf("step %d: another content, or with a copy", step+1)
		}
	}
}

// TestIntoSlices: blocks of memory that was allocated as a whole are received into at once,
// each without a copy and within its bounds, and are sent without one.
func TestIntoSlices(t *testing.T) {
	const size, blocks = 64 * kib, 8
	s := newStage(t, clusterOptions{require: true})
	from, to := s.pair()
	cache, err := to.transport.ReceiveAllocator().Allocate(size * blocks)
	if err != nil {
		t.Fatal(err)
	}
	defer cache.Release()
	ended := make(chan bool, blocks)
	for i := range blocks {
		buf, err := cache.Slice(i*size, size)
		if err != nil {
			t.Fatal(err)
		}
		dst, err := tensor.New(tensor.Uint8, tensor.Vector(size), buf)
		if err != nil {
			t.Fatal(err)
		}
		k := from.key(to, fmt.Sprint("block", i))
		into, err := rendezvous.NewInto(dst)
		if err != nil {
			t.Fatal(err)
		}
		to.in(1).RecvAsync(t.Context(), k, into.Args(), func(v rendezvous.Value, _ rendezvous.Args, err error) {
			if err == nil {
				v.Tensor.Release()
			}
			ended <- err == nil && into.ZeroCopy() && isNoise(dst.Bytes(), uint64(i))
			dst.Release()
		})
	}
	for i := range blocks {
		from.sendsBlob(1, from.key(to, fmt.Sprint("block", i)), uint64(i), size)
	}
	for range blocks {
		if !<-ended {
			t.Error("a block has another content, or was copied")
		}
	}
	for i := range blocks {
		if !isNoise(cache.Bytes()[i*size:][:size], uint64(i)) {
			t.Errorf("block %d was written to by a later transfer", i)
		}
	}
}

// TestIntoChangesTheRoute: a content that had come in part over gRPC comes over verbs at last, into
// the same memory.
func TestIntoChangesTheRoute(t *testing.T) {
	const size = 40 * mib // in chunks
	s := newStage(t, tuned(clusterOptions{}, func(o *verbstransport.Options) {
		o.Backoff, o.Memory.Arena, o.Memory.LateWrite = 20*time.Millisecond, 64*mib, nil
		o.Chunk, o.Outstanding = 4*mib, 16*mib
	}))
	from, to := s.pair()
	dst := s.blob(to.transport.ReceiveAllocator(), 9, size)
	defer dst.Release()
	k := from.key(to, "v")
	proxy := s.c.proxies[from.task]
	s.wires(from, to).Cut()
	from.sendsBlob(2, k, 2, 8) // breaks the channel
	to.recv(2, k).isBlob(2, 8)
	s.until("the channel is down", func() bool { return !to.connection(from).Verbs && !from.connection(to).Verbs })
	from.sendsBlob(1, k, 1, size)
	stuck := proxy.HoldAfter(10 * mib)
	into, err := rendezvous.NewInto(dst)
	if err != nil {
		t.Fatal(err)
	}
	type outcome struct {
		v   rendezvous.Value
		err error
	}
	ended := make(chan outcome, 1)
	to.in(1).RecvAsync(t.Context(), k, into.Args(), func(v rendezvous.Value, _ rendezvous.Args, err error) { ended <- outcome{v, err} })
	s.happens("a part has come over gRPC", stuck)
	s.wires(from, to).Restore()
	s.until("the channel is up", func() bool { return to.connection(from).Verbs && from.connection(to).Verbs })
	proxy.CutAfter(0)
	proxy.Release()
	o := <-ended
	if o.err != nil {
		t.Fatal(o.err)
	}
	how := o.v.Arrival()
	o.v.Tensor.Release()
	if !isNoise(dst.Bytes(), 1) || !dst.Buffer().Unique() {
		t.Error("another content, or another reference")
	}
	if how.Transport != verbstransport.Name || how.Attempts < 2 || !into.ZeroCopy() {
		t.Errorf("%+v, zero copy %v; want verbs after an attempt over gRPC", how, into.ZeroCopy())
	}
	s.until("the sent content is released", func() bool {
		runtime.GC() // gRPC drops buffers of a broken connection without freeing them
		return s.source.Outstanding() == 0 && from.transport.Memory().Sending.InUse == 0
	})
	to.stop() // first: its connections through the proxy would hold up the other one's end
}
