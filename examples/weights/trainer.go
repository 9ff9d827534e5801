package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"github.com/tryst-rdma/tryst"
	"github.com/tryst-rdma/tryst/tensor"
)

const (
	publication = "policy"
	layers      = 16
	rows        = 512 // of a layer, which has as many columns: 512 KiB of bfloat16
	// madeName is a tensor with the time at which the version was made, from which rollouts take
	// their lag.
	madeName = "made"
)

// train publishes versions, and serves the last one until ctx ends.
func train(ctx context.Context, out io.Writer, o options) error {
	cfg := o.config()
	cfg.Listen = o.address
	s, err := tryst.Serve(ctx, cfg)
	if err != nil {
		return err
	}
	defer s.Close(context.WithoutCancel(ctx))
	fmt.Fprintln(out, s.Addr())

	// Two sets in turn: one is published, and the next version is made in the other.
	var sets [2]*weights
	for i := range sets {
		if sets[i], err = newWeights(s.SendAllocator()); err != nil {
			return err
		}
		defer sets[i].release()
	}
	tick := time.NewTicker(o.every)
	defer tick.Stop()
	for n := range o.updates {
		now, before := sets[n%2], sets[(n+1)%2]
		if now.lent != nil {
			if err := now.lent.Wait(ctx); err != nil { // nobody reads this set any more
				return ended(ctx, err)
			}
		}
		share := now.learn(before, n)
		if now.lent, err = s.Update(ctx, publication, now.tensors); err != nil {
			return ended(ctx, err)
		}
		fmt.Fprintf(out, "version %d: %.1f %% of the elements are new\n", now.lent.Publication.Number, 100*share)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
	<-ctx.Done()
	return nil
}

// ended returns nil for an error that the end of ctx has caused.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// weights is one set of the memory of the trainer.
type weights struct {
	tensors []*tensor.Tensor
	values  [][]tensor.BFloat16Bits // of the layers
	made    []int64
	lent    *tryst.Lent // until when it is published; nil before
}

func newWeights(a tensor.Allocator) (*weights, error) {
	w := new(weights)
	for i := range layers {
		t, err := tensor.Make[tensor.BFloat16Bits](a, rows, rows)
		if err != nil {
			return w, err
		}
		w.tensors = append(w.tensors, t.Named(fmt.Sprintf("layer.%d", i)))
		values, err := tensor.Values[tensor.BFloat16Bits](t)
		if err != nil {
			return w, err
		}
		w.values = append(w.values, values)
	}
	t, err := tensor.Make[int64](a, 1)
	if err != nil {
		return w, err
	}
	w.tensors = append(w.tensors, t.Named(madeName))
	w.made, err = tensor.Values[int64](t)
	return w, err
}

func (w *weights) release() {
	for _, t := range w.tensors {
		t.Release()
	}
}

// learn makes step n of the training, whose step before left the other set: 1 to 3 % of the elements
// change, in their low bits. It returns the share.
func (w *weights) learn(before *weights, n int) float64 {
	share := 0.01 + 0.02*rand.Float64()
	for i, values := range w.values {
		if n == 0 {
			share = 1
			for j := range values {
				values[j] = tensor.BFloat16Bits(0x3c00 + rand.IntN(1<<8)) // around 0.01
			}
			continue
		}
		copy(values, before.values[i])
		for range int(share * float64(len(values))) {
			values[rand.IntN(len(values))] ^= 1
		}
	}
	w.made[0] = time.Now().UnixNano()
	return share
}
