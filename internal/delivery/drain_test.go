package delivery

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/transport"
)

func TestDrainWaitsForValuesAndNotForErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, source := newLeaks(t), newTable(t)
		k := NewResponseCache(source, CacheOptions{})
		source.step(2).Abort(errors.New("over"))
		if ans := answer(k, transport.Request{Requester: requester7, ID: 1, Attempt: 1, Step: 2, Key: key(t, "k")}); ans.Err == nil {
			t.Fatal("a value from an aborted step")
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := k.Drain(ctx); err != nil {
			t.Errorf("with nothing but an error kept: %v", err)
		}

		source.send(t, 1, key(t, "k"), l.value(t, 'a', 10))
		answer(k, transport.Request{Requester: requester7, ID: 2, Attempt: 1, Step: 1, Key: key(t, "k")}).Value.Tensor.Release()
		err := k.Drain(ctx)
		if status.CodeOf(err) != status.DeadlineExceeded || !strings.Contains(err.Error(), "1 values of 10 bytes") {
			t.Errorf("with a value kept: %v", err)
		}
		time.AfterFunc(time.Second, func() { k.Ack(requester7, []uint64{2}) })
		begin := time.Now()
		if err := k.Drain(t.Context()); err != nil || time.Since(begin) < time.Second {
			t.Errorf("after %v: %v", time.Since(begin), err)
		}
		k.Close()
	})
}

// TestDrainWaitsForValuesOfEndedSteps: a requester that is connected acknowledges a value after its
// step has ended, and its next request then finds a process that says so.
func TestDrainWaitsForValuesOfEndedSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, source := newLeaks(t), newTable(t)
		k := NewResponseCache(source, CacheOptions{})
		defer k.Close()
		disconnected := k.Connected(requester7)
		get := func(id uint64) {
			source.send(t, 1, key(t, "k"), l.value(t, 'a', 10))
			answer(k, transport.Request{Requester: requester7, ID: id, Attempt: 1, Step: 1, Key: key(t, "k")}).Value.Tensor.Release()
		}
		drains := func(what string, want time.Duration, ends func()) {
			t.Helper()
			time.AfterFunc(time.Second, ends)
			begin := time.Now()
			if err := k.Drain(t.Context()); err != nil || time.Since(begin).Round(time.Second) != want {
				t.Errorf("%s: after %v: %v, want after %v", what, time.Since(begin), err, want)
			}
			time.Sleep(2 * time.Second)
		}
		nothing := func() {}
		get(2)
		get(3)
		k.Ack(requester7, []uint64{2})
		k.EndStep(1)
		drains("until it is acknowledged", time.Second, func() { k.Ack(requester7, []uint64{3}) })
		get(4)
		k.EndStep(1)
		drains("until it is cancelled", time.Second, func() {
			if err := k.Cancel(requester7, []uint64{4}); err != nil {
				t.Error(err)
			}
		})
		get(5)
		k.EndStep(1)
		drains("until the requester is gone", time.Second, disconnected)
		drains("without a connection", 0, nothing)
		defer k.Connected(requester7)()
		drains("since it is back, and may request it again", drainGrace, nothing)
		drains("of a requester that has not requested it again", 0, nothing)
		get(6)
		k.EndStep(1)
		drains("by the present connection", time.Second, func() { k.Ack(requester7, []uint64{6}) })
	})
}

// TestDrainGivesUpWhoHasGone: a requester that was killed with a value that it has not acknowledged.
func TestDrainGivesUpWhoHasGone(t *testing.T) {
	for _, c := range []struct {
		name      string
		addressed bool
		verify    func(ctx context.Context) (uint64, error)
		want      time.Duration
		waits     bool // until it acknowledges
	}{
		{"it has no address", false, nil, drainGrace, false},
		{"its address is not reached", true, func(context.Context) (uint64, error) { return 0, errors.New("connection refused") }, drainGrace, false},
		{"its host does not answer", true, func(ctx context.Context) (uint64, error) { <-ctx.Done(); return 0, ctx.Err() }, verifyWait, false},
		{"another process is there", true, func(context.Context) (uint64, error) { return requester7.Incarnation + 1, nil }, 0, false},
		{"it is there", true, func(context.Context) (uint64, error) { return requester7.Incarnation, nil }, time.Minute, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, source := newLeaks(t), newTable(t)
				k := NewResponseCache(source, CacheOptions{
					Addressed: func(string) bool { return c.addressed },
					Verify:    func(ctx context.Context, _ string) (uint64, error) { return c.verify(ctx) },
				})
				defer k.Close()
				disconnected := k.Connected(requester7)
				source.send(t, 1, key(t, "k"), l.value(t, 'a', 10))
				answer(k, transport.Request{Requester: requester7, ID: 2, Attempt: 1, Step: 1, Key: key(t, "k")}).Value.Tensor.Release()
				disconnected()
				if c.waits {
					go func() {
						time.Sleep(30 * time.Second)
						done := k.Connected(requester7) // it comes back, and takes its time
						time.Sleep(30 * time.Second)
						k.Ack(requester7, []uint64{2})
						done()
					}()
				}
				begin := time.Now()
				if err := k.Drain(t.Context()); err != nil || time.Since(begin).Truncate(100*time.Millisecond) != c.want {
					t.Errorf("after %v: %v, want after %v", time.Since(begin), err, c.want)
				}
				synctest.Wait()
			})
		})
	}
}
