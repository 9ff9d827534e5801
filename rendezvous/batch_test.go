package rendezvous_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

func TestX6SendTensorsRecvOutputs(t *testing.T) {
	c, m := counted(t), manager(t)
	r := m.Find(step)
	const n = 5
	var keys []rendezvous.Key
	var ts []*tensor.Tensor
	for i := range n {
		keys = append(keys, key(t, string(rune('a'+i))))
		ts = append(ts, c.make(i))
		defer ts[i].Release()
	}
	if err := rendezvous.SendTensors(r, keys, ts); err != nil {
		t.Fatal(err)
	}
	values, err := rendezvous.RecvOutputs(t.Context(), r, keys)
	if err != nil {
		t.Fatal(err)
	}
	for i, v := range values {
		if take(v) != i {
			t.Errorf("key %d has another key's value", i)
		}
	}
	mustBe(t, rendezvous.SendTensors(r, keys, ts[1:]), status.InvalidArgument, "5 keys and 4 tensors")

	// A missing one makes it wait.
	if err := rendezvous.SendTensors(r, keys[1:], ts[1:]); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		values, err := rendezvous.RecvOutputs(t.Context(), r, keys)
		if err != nil {
			t.Error(err)
			return
		}
		for i, v := range values {
			if take(v) != i {
				t.Errorf("key %d has another key's value", i)
			}
		}
	})
	c.mustSend(t, r, keys[0], 0)
	wg.Wait()

	// An error releases what came, and the root cause is told.
	if err := rendezvous.SendTensors(r, keys[:3], ts[:3]); err != nil {
		t.Fatal(err)
	}
	wg.Go(func() {
		_, err = rendezvous.RecvOutputs(t.Context(), r, keys)
	})
	r.Abort(errBoom)
	wg.Wait()
	if !errors.Is(err, errBoom) {
		t.Error(err)
	}
	if err := rendezvous.SendTensors(r, keys, ts); !errors.Is(err, errBoom) {
		t.Error(err)
	}
}

func TestX6CancelledRecvOutputs(t *testing.T) {
	c, m := counted(t), manager(t)
	r := m.Find(step)
	c.mustSend(t, r, key(t, "a"), 1)
	ctx, cancel := context.WithTimeout(t.Context(), 1)
	defer cancel()
	<-ctx.Done()
	values, err := rendezvous.RecvOutputs(ctx, r, []rendezvous.Key{key(t, "a"), key(t, "b")})
	mustBe(t, err, status.DeadlineExceeded, "RecvAsync")
	if values != nil {
		t.Error("values beside an error")
	}
	mustRecv(t, r, key(t, "a"), 1) // nothing was consumed
}
