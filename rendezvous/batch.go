package rendezvous

import (
	"context"
	"sync"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// SendTensors sends tensors[i] under keys[i], and stops at the first error.
// Every tensor that was sent has a reference of its own; the caller keeps its.
func SendTensors(r Rendezvous, keys []Key, tensors []*tensor.Tensor) error {
	if len(keys) != len(tensors) {
		return status.Errorf(status.InvalidArgument, "SendTensors: %d keys and %d tensors", len(keys), len(tensors))
	}
	for i, key := range keys {
		if err := r.Send(key, Args{}, tensors[i], false); err != nil {
			return err
		}
	}
	return nil
}

// RecvOutputs receives one value for each key, all at once, and waits for them.
// The values come in the order of the keys; the caller releases their tensors.
// A value may be dead.
//
// The first error cancels the other receives; what was received is released and
// the values are nil. The error sums up those of all receives, as status.Group
// does: what was cancelled here hides nothing.
func RecvOutputs(ctx context.Context, r Rendezvous, keys []Key) ([]Value, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	values := make([]Value, len(keys))
	var (
		mu     sync.Mutex // protects failed
		failed status.Group
		wg     sync.WaitGroup
	)
	wg.Add(len(keys))
	for i, key := range keys {
		r.RecvAsync(ctx, key, Args{}, func(v Value, _ Args, err error) {
			defer wg.Done()
			values[i] = v
			if err == nil {
				return
			}
			mu.Lock()
			failed.Add(err)
			mu.Unlock()
			cancel()
		})
	}
	wg.Wait()
	if err := failed.Err(); err != nil {
		for _, v := range values {
			v.release()
		}
		return nil, err
	}
	return values, nil
}
