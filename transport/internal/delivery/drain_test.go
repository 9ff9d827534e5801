package delivery

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tryst-rdma/tryst/status"
)

func TestDrainWaitsForValuesAndNotForErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, source := newLeaks(t), newTable(t)
		k := NewResponseCache(source, CacheOptions{})
		source.step(2).Abort(errors.New("over"))
		if ans := answer(k, Request{Requester: requester7, ID: 1, Attempt: 1, Step: 2, Key: key(t, "k")}); ans.Err == nil {
			t.Fatal("a value from an aborted step")
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := k.Drain(ctx); err != nil {
			t.Errorf("with nothing but an error kept: %v", err)
		}

		source.send(t, 1, key(t, "k"), l.value(t, 'a', 10))
		answer(k, Request{Requester: requester7, ID: 2, Attempt: 1, Step: 1, Key: key(t, "k")}).Value.Tensor.Release()
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
			answer(k, Request{Requester: requester7, ID: id, Attempt: 1, Step: 1, Key: key(t, "k")}).Value.Tensor.Release()
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
	})
}
