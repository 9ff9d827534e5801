package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/tensor"
)

func waitingManager(t *testing.T) (m *Manager, key func(from, to int, name string) Key) {
	t.Helper()
	task := func(i int) cluster.Task { return cluster.Task{Job: "worker", Index: i} }
	m = NewManager(ManagerOptions{Session: NewSession(task(0), 5, 1), SendBound: 1000})
	t.Cleanup(m.Close)
	return m, func(from, to int, name string) Key {
		k, err := NewKey(cluster.DeviceOf(task(from)), 5, cluster.DeviceOf(task(to)), name, FrameIter{})
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
}

// TestWaitingHasEachKindOldestFirst: who waits for which key, in which step, and since when.
func TestWaitingHasEachKindOldestFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, key := waitingManager(t)
		nobody := func(v Value, _ Args, err error) {
			if err == nil {
				v.Tensor.Release()
			}
		}
		x, err := tensor.FromSlice(tensor.Vector(200), make([]float32, 200))
		if err != nil {
			t.Fatal(err)
		}
		defer x.Release()
		begin := time.Now()
		m.RecvLocalAsync(t.Context(), 2, key(0, 1, "early"), nobody) // step 2 is not begun
		time.Sleep(time.Second)
		m.Find(1).RecvAsync(t.Context(), key(0, 0, "own"), Args{}, nobody)
		time.Sleep(time.Second)
		m.RecvLocalAsync(t.Context(), 1, key(0, 1, "asked"), nobody)
		time.Sleep(time.Second)
		if _, err := m.Find(1).SendWait(t.Context(), key(0, 2, "first"), Args{}, x, false); err != nil {
			t.Fatal(err)
		}
		blocked := make(chan error)
		go func() {
			_, err := m.Find(1).SendWait(t.Context(), key(0, 2, "second"), Args{}, x, false)
			blocked <- err
		}()
		synctest.Wait()
		w := m.Waiting(10, 1000)
		if len(w.Oldest) != 4 || w.Total != 4 || !w.Complete || w.Living != 2 {
			t.Fatalf("%+v", w)
		}
		for i, want := range []Waiting{
			{WaitBegin, 2, key(0, 1, "early"), begin},
			{WaitLocal, 1, key(0, 0, "own"), begin.Add(time.Second)},
			{WaitPeer, 1, key(0, 1, "asked"), begin.Add(2 * time.Second)},
			{WaitSpace, 1, key(0, 2, "second"), begin.Add(3 * time.Second)},
		} {
			if got := w.Oldest[i]; got.Kind != want.Kind || got.Step != want.Step || got.Key != want.Key || !got.Since.Equal(want.Since) {
				t.Errorf("%d: %+v, want %+v", i, got, want)
			}
		}
		if s := w.Steps; len(s) != 2 || s[0].Step != 2 || s[0].Begun || s[1].Waits != 3 || s[1].Values != 1 || len(s[1].Unreceived) != 1 || s[1].Unreceived[0].Edge() != "first" {
			t.Errorf("%+v", s)
		}
		m.AbortStep(1, errors.New("enough"))
		if err := <-blocked; err == nil {
			t.Error("the send went on")
		}
		m.AbortStep(2, errors.New("enough"))
	})
}

// TestWaitingIsBounded: of thousands of receives it returns the oldest, and of more than it may look at it says so.
func TestWaitingIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, key := waitingManager(t)
		ctx, cancel := context.WithCancel(t.Context())
		const n = 2000
		for i := range n {
			time.Sleep(time.Millisecond)
			m.Find(int64(i%3)).RecvAsync(ctx, key(0, 0, fmt.Sprint(i)), Args{}, func(Value, Args, error) {})
		}
		w := m.Waiting(50, 10*n)
		if len(w.Oldest) != 50 || w.Total != n || !w.Complete {
			t.Errorf("%d, %d, %t", len(w.Oldest), w.Total, w.Complete)
		}
		for i, one := range w.Oldest {
			if one.Key.Edge() != fmt.Sprint(i) {
				t.Errorf("%d: %s", i, one.Key.Edge())
			}
		}
		if w := m.Waiting(50, n/2); len(w.Oldest) != 50 || w.Complete || w.Total > n/2+1 {
			t.Errorf("%d, %d, %t", len(w.Oldest), w.Total, w.Complete)
		}
		cancel()
		synctest.Wait()
		if w := m.Waiting(50, n); w.Total != 0 || len(w.Oldest) != 0 {
			t.Errorf("%+v", w)
		}
	})
}
