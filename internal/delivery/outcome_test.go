package delivery

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/transport"
)

func boom() *status.Error { return status.New(status.Internal, "boom") }

// TestErrorOfTheTransportIsKept: a value that the transport could not send is replaced by its
// error, which later attempts get too, and the space of the value is free.
func TestErrorOfTheTransportIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLeaks(t)
		r := transport.Request{Requester: requester7, ID: 1, Attempt: 1, Step: 1, Key: key(t, "k")}
		task, err := cluster.ParseTask(producer)
		if err != nil {
			t.Fatal(err)
		}
		m := rendezvous.NewManager(rendezvous.ManagerOptions{Session: &rendezvous.Session{Task: task}})
		defer m.Close()
		k := NewResponseCache(m, CacheOptions{})
		defer k.Close()
		defer k.Connected(requester7)()
		v := l.value(t, 'a', 1)
		if err := m.Find(r.Step).Send(r.Key, rendezvous.Args{}, v.Tensor, false); err != nil {
			t.Fatal(err)
		}
		v.Tensor.Release()
		answer(k, r).Value.Tensor.Release()
		k.Fail(requester7, 1, 1, boom())
		k.Fail(requester7, 1, 1, status.New(status.Unknown, "the same again"))
		if synctest.Wait(); l.alive.Load() != 0 {
			t.Error("the value is still held")
		}
		r.Attempt++
		if resp := answer(k, r); status.CodeOf(resp.Err) != status.Internal {
			t.Errorf("the next attempt got %v", resp)
		}
		if s := k.Stats(); s.Kept != 1 || s.Bytes != 0 {
			t.Errorf("%+v", s)
		}
		k.Ack(requester7, []uint64{1})
		if s := k.Stats(); s.Kept != 0 {
			t.Errorf("after the acknowledgement: %+v", s)
		}
	})
}

// TestCacheTellsSendersTheOutcome: the sender of a value learns what became of it when the
// requester has acknowledged it, or when its response is dropped; nothing when it goes back.
func TestCacheTellsSendersTheOutcome(t *testing.T) {
	const step = 1
	type world struct {
		*ResponseCache
		m    *rendezvous.Manager
		d    *rendezvous.Delivery
		down func() // ends the connection of the requester
	}
	for _, c := range []struct {
		name string
		do   func(w world)
		want status.Code
		none bool // there is no outcome
	}{
		{"acknowledged", func(w world) { w.Ack(requester7, []uint64{1}) }, status.OK, false},
		{"requested again", func(w world) {
			answer(w.ResponseCache, transport.Request{Requester: requester7, ID: 1, Attempt: 2, Step: step, Key: key(t, "k")}).Value.Tensor.Release()
		}, 0, true},
		{"cancelled", func(w world) { _ = w.Cancel(requester7, []uint64{1}) }, 0, true},
		{"cancelled after the end of the step", func(w world) {
			w.m.AbortStep(step, boom())
			_ = w.Cancel(requester7, []uint64{1})
		}, status.Aborted, false},
		{"not sent", func(w world) { w.Fail(requester7, 1, 1, boom()) }, status.Internal, false},
		{"not sent, then acknowledged", func(w world) {
			w.Fail(requester7, 1, 1, boom())
			w.Ack(requester7, []uint64{1})
		}, status.Internal, false},
		{"not sent, then cancelled", func(w world) {
			w.Fail(requester7, 1, 1, boom())
			_ = w.Cancel(requester7, []uint64{1})
		}, status.Internal, false},
		{"not sent by an attempt that was left", func(w world) {
			answer(w.ResponseCache, transport.Request{Requester: requester7, ID: 1, Attempt: 2, Step: step, Key: key(t, "k")}).Value.Tensor.Release()
			w.Fail(requester7, 1, 1, boom())
		}, 0, true},
		{"cleaned up", func(w world) {
			w.m.Cleanup(step)
			w.EndStep(step)
		}, status.Aborted, false},
		{"aborted, then acknowledged", func(w world) {
			w.m.AbortStep(step, boom())
			w.Ack(requester7, []uint64{1})
		}, status.OK, false},
		{"out of reach for a minute", func(w world) {
			w.down()
			time.Sleep(expireAfter + time.Minute)
		}, status.DataLoss, false},
		{"another process of the requester", func(w world) {
			w.down()
			_ = w.Introduce(context.Background(), transport.Process{Name: requester7.Name, Incarnation: 8}, "")
		}, status.Aborted, false},
		{"closed", func(w world) { w.Close() }, status.Aborted, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLeaks(t)
				task, err := cluster.ParseTask(producer)
				if err != nil {
					t.Fatal(err)
				}
				m := rendezvous.NewManager(rendezvous.ManagerOptions{Session: &rendezvous.Session{Task: task}})
				defer m.Close()
				k := NewResponseCache(m, CacheOptions{
					Addressed: everyName, Verify: func(context.Context, string) (uint64, error) { return 8, nil },
				})
				defer k.Close()
				v := l.value(t, 'a', 1)
				in := m.Find(step)
				d, err := in.SendWait(t.Context(), key(t, "k"), rendezvous.Args{}, v.Tensor, false)
				v.Tensor.Release()
				if err != nil {
					t.Fatal(err)
				}
				over := k.Connected(requester7)
				connected := true
				down := func() {
					if connected {
						connected = false
						over()
					}
				}
				defer down()
				answer(k, transport.Request{Requester: requester7, ID: 1, Attempt: 1, Step: step, Key: key(t, "k")}).Value.Tensor.Release()
				select {
				case <-d.Done():
					t.Errorf("the requester has not acknowledged it: %v", d.Err())
				default:
				}
				c.do(world{k, m, d, down})
				synctest.Wait()
				select {
				case <-d.Done():
					if c.none || status.CodeOf(d.Err()) != c.want {
						t.Errorf("the outcome is %v", d.Err())
					}
					if n := in.Unreceived(key(t, "k").Dst().Task); n != 0 {
						t.Errorf("%d bytes are counted", n)
					}
					if n := l.alive.Load(); n != 0 {
						t.Error("it has its outcome before its memory was released")
					}
				default:
					if !c.none {
						t.Error("there is no outcome")
					}
				}
			})
		})
	}
}
