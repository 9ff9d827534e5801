package tensor_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// TestWaitUniqueWaitsForTheLastOtherReference, of any number, and not beyond the end of its context.
func TestWaitUniqueWaitsForTheLastOtherReference(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := tensor.NewBuffer(make([]byte, 8), nil)
		defer b.Release()
		if err := b.WaitUnique(t.Context()); err != nil {
			t.Errorf("with one reference: %v", err)
		}
		b.Retain().Retain()
		done := make(chan error, 2)
		for range cap(done) {
			go func() { done <- b.WaitUnique(context.Background()) }()
		}
		b.Release()
		synctest.Wait()
		if len(done) > 0 {
			t.Error("it did not wait for the second reference")
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := b.WaitUnique(ctx); status.CodeOf(err) != status.Cancelled || !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want Cancelled", err)
		}
		b.Release()
		for range cap(done) {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
}

// TestWaitUniqueMissesNoRelease that happens while it begins to wait.
func TestWaitUniqueMissesNoRelease(t *testing.T) {
	b := tensor.NewBuffer(make([]byte, 8), nil)
	defer b.Release()
	for range 10000 {
		b.Retain()
		var both sync.WaitGroup
		both.Go(b.Release)
		both.Go(func() {
			if err := b.WaitUnique(context.Background()); err != nil {
				t.Error(err)
			}
		})
		both.Wait()
	}
}
