package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// Keys whose hashes are all the same are still told apart by their text, at
// every size of the table.
func TestTableFullHashCollision(t *testing.T) {
	for _, n := range []int{2, fewKeys + 1, 100} {
		s := new(shard)
		text := func(i int) string { return fmt.Sprint("key", i) }
		s.mu.Lock()
		for i := range n {
			if s.headLocked(text(i), 7) != nil {
				t.Fatalf("key %d is there before it was put", i)
			}
			e := s.newEntryLocked(text(i), 7)
			s.insertLocked(nil, e)
		}
		for i := range n {
			// From the middle outwards, so that chains are cut everywhere.
			i = (i + n/2) % n
			e := s.headLocked(text(i), 7)
			if e == nil || e.key != text(i) {
				t.Fatalf("%d keys: found %v for %s", n, e, text(i))
			}
			s.removeLocked(e)
			if s.headLocked(text(i), 7) != nil {
				t.Fatalf("%d keys: %s is still there", n, text(i))
			}
		}
		if s.keys != 0 {
			t.Errorf("%d keys are left", s.keys)
		}
		s.mu.Unlock()
	}
}

// An emptied part gives its memory up.
func TestTableShrinks(t *testing.T) {
	s := new(shard)
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []*entry
	for i := range uint32(10_000) {
		e := s.newEntryLocked(fmt.Sprint(i), i)
		s.insertLocked(nil, e)
		all = append(all, e)
	}
	if len(s.buckets) < 10_000 {
		t.Errorf("%d buckets for 10000 keys", len(s.buckets))
	}
	for _, e := range all {
		s.removeLocked(e)
		s.recycleLocked(e)
	}
	if len(s.buckets) > shrinkAbove || s.nfree > maxFree {
		t.Errorf("an empty part keeps %d buckets and %d entries", len(s.buckets), s.nfree)
	}
}

// A Send or Recv that waits for the lock of its part while Abort sweeps it must
// not queue anything afterwards. Abort overtakes it here, since whoever gives a
// mutex up and wants it again gets it before a goroutine that has to wake.
func TestContract3AbortOvertakesSendAndRecv(t *testing.T) {
	boom := status.New(status.Internal, "boom")
	for range 300 {
		l := NewLocal()
		s, _ := l.shard("a")
		x, err := tensor.FromBytes(tensor.Uint8, tensor.Vector(1), []byte{1})
		if err != nil {
			t.Fatal(err)
		}
		recv, recvAsync, sent := make(chan error, 1), make(chan error, 1), make(chan error, 1)
		s.mu.Lock()
		go func() {
			_, err := l.recv(context.Background(), "a", Args{}, false)
			recv <- err
		}()
		go l.recvAsync(context.Background(), "a", Args{}, func(_ Value, _ Args, err error) { recvAsync <- err }, false)
		for range 20 {
			runtime.Gosched()
		}
		s.mu.Unlock()
		l.Abort(boom)
		for _, c := range []chan error{recv, recvAsync} {
			if err := <-c; !errors.Is(err, boom) {
				t.Fatal(err)
			}
		}

		l = NewLocal()
		s, _ = l.shard("a")
		s.mu.Lock()
		go func() { sent <- l.send("a", Args{}, x, false) }()
		for range 20 {
			runtime.Gosched()
		}
		s.mu.Unlock()
		l.Abort(boom)
		if err := <-sent; err != nil && !errors.Is(err, boom) {
			t.Fatal(err)
		}
		if !x.Buffer().Unique() {
			t.Fatal("a value was left behind in an aborted step")
		}
	}
}

// A cancellation that comes too late for its receive must not hit another one
// that has its place, or its memory.
func TestContract3LateCancelHitsNobodyElse(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	l := NewLocal()
	defer l.Close()
	x, err := tensor.FromBytes(tensor.Uint8, tensor.Vector(1), []byte{1})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan string, 4)
	recv := func(name string, ctx context.Context) *entry {
		l.recvAsync(ctx, "a", Args{}, func(Value, Args, error) { ended <- name }, false)
		s, hash := l.shard("a")
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.headLocked("a", hash)
	}
	first := recv("first", ctx)
	if err := l.send("a", Args{}, x, false); err != nil {
		t.Fatal(err)
	}
	recv("second", context.Background())
	if s, _ := l.shard("a"); s.withdraw(first, 0) {
		t.Error("the cancellation of one receive took another out of the queue")
	}
	if err := l.send("a", Args{}, x, false); err != nil {
		t.Fatal(err)
	}
	if a, b := <-ended, <-ended; a != "first" || b != "second" {
		t.Errorf("ended: %s, %s", a, b)
	}
}

func TestHistory(t *testing.T) {
	h := newHistory(3)
	for id := range int64(5) {
		h.add(id, nil)
		h.add(id, errShutdown()) // the first reason stays
	}
	for id := range int64(5) {
		if err := h.find(id); (err != nil) != (id >= 2) {
			t.Errorf("step %d: %v", id, err)
		} else if err != nil && err.Error() != errCleanup(id).Error() {
			t.Errorf("step %d: %v", id, err)
		}
	}
	if len(h.why) != 3 || len(h.ring) != 3 {
		t.Errorf("it holds %d and %d", len(h.why), len(h.ring))
	}
}
