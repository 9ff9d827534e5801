package rendezvous

import (
	"context"
	"sync"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// SendTensors sends tensors[i] under keys[i], and stops at the first error. The
// caller keeps its references; see Rendezvous.Send.
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

// RecvOutputs starts one receive for each key and waits for all of them. It
// returns the values in the order of the keys; the caller releases their tensors.
// A value may be dead.
//
// The first error cancels the other receives. RecvOutputs then releases the
// values that were received and returns the error of a status.Group, which
// prefers the cause to the errors of the receives that were cancelled here.
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
