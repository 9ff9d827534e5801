package collective

import (
	"context"
	"strings"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// Operation is one operation of one device, as a node of a TensorFlow graph describes it.
type Operation struct {
	// Name is the name of the node. Errors have it. As in TensorFlow, the instances of a node with
	// "DTensor" in its name belong to one step.
	Name string
	// Device is the member of the group.
	Device cluster.Device
	// GroupKey and GroupSize say which group it is. The size is the number of members.
	GroupKey  int32
	GroupSize int
	// InstanceKey says which operation of the group it is.
	InstanceKey int32
	// Frame and Iter are the iteration of a loop that the node runs in, as in a rendezvous key.
	Frame uint64
	Iter  int64
	// Timeout bounds the wait for the other members, and then the exchange. There is no bound when it is
	// 0.
	Timeout time.Duration
}

// Run calls f with a step on a goroutine of its own, which Close waits for, and done with the result. An
// error of f, or a panic, ends all operations of the step, here and at the other members: the step fails
// as a whole. Run calls done itself, with Aborted, when c is closed, and with InvalidArgument for the step
// of the Groups.
func (c *Collectives) Run(name string, step int64, f func(*Step) (*tensor.Tensor, error), done func(*tensor.Tensor, error)) {
	if step == groupStep { // an error would end all Groups of this process
		done(nil, status.Errorf(status.InvalidArgument, "Collective Op %s runs in step %d, which belongs to the groups of Go programs; use another step_id", name, groupStep))
		return
	}
	if err := c.enter(); err != nil {
		done(nil, err)
		return
	}
	go func() {
		defer c.work.Done()
		s := c.Step(step)
		var out *tensor.Tensor
		err := guard(func() (err error) {
			out, err = f(s)
			return err
		})
		if err != nil {
			s.abort(err)
		}
		done(out, err)
	}()
}

// Reduction is how an all-reduce merges the tensors of the members. The zero Reduction adds.
type Reduction struct {
	merge   Merge
	divide  bool
	offsets []int64
	limit   int
}

// ParseReduction returns the Reduction of the attributes of a node of TensorFlow. subdivOffsets are where
// the rings begin, in members; empty for one that fits the group and the tensor, with at most
// maxSubdivisions rings a device (0 for TensorFlow's default).
func ParseReduction(mergeOp, finalOp string, subdivOffsets []int64, maxSubdivisions int) (Reduction, error) {
	merge, divide, err := parseMerge(mergeOp, finalOp)
	return Reduction{merge, divide, subdivOffsets, maxSubdivisions}, err
}

// AllReduce merges the tensors of all members. The result is the caller's to release.
func (s *Step) AllReduce(ctx context.Context, o Operation, in *tensor.Tensor, r Reduction) (*tensor.Tensor, error) {
	return s.exchange(ctx, o, operation{reduction, in.DType(), in.Shape()}, false, func(x *exchange, _ int) (*tensor.Tensor, error) {
		if err := checkOffsets(r.offsets, x.m); err != nil {
			return nil, err
		}
		offsets := make([]int, len(r.offsets))
		for i, o := range r.offsets {
			offsets[i] = int(o)
		}
		if len(offsets) == 0 {
			offsets = subdivisions(x.m, in.Size(), r.limit)
		}
		return x.allReduce(in, r.merge, r.divide, allReduceRings(x.m, x.rank, offsets))
	})
}

// Gather returns the tensors of all members one after the other, along the first dimension. The result is
// the caller's to release.
func (s *Step) Gather(ctx context.Context, o Operation, in *tensor.Tensor) (*tensor.Tensor, error) {
	shape, err := gatherShape(in.Shape(), max(1, o.GroupSize))
	if err != nil {
		return nil, err
	}
	return s.exchange(ctx, o, operation{gather, in.DType(), shape}, false, func(x *exchange, _ int) (*tensor.Tensor, error) { return x.gather(in) })
}

// Send sends a tensor to all other members, which Receive it.
func (s *Step) Send(ctx context.Context, o Operation, in *tensor.Tensor) error {
	_, err := s.exchange(ctx, o, operation{broadcast, in.DType(), in.Shape()}, true, func(x *exchange, source int) (*tensor.Tensor, error) {
		return nil, x.broadcast(in, source)
	})
	return err
}

// Receive returns the tensor that another member sends. Its memory comes from a when all members are
// there. The result is the caller's to release.
func (s *Step) Receive(ctx context.Context, o Operation, a tensor.Allocator, dtype tensor.DType, shape tensor.Shape) (*tensor.Tensor, error) {
	return s.exchange(ctx, o, operation{broadcast, dtype, shape}, false, func(x *exchange, source int) (*tensor.Tensor, error) {
		t, err := tensor.Allocate(a, dtype, shape)
		if err != nil {
			return nil, err
		}
		if err := x.broadcast(t, source); err != nil {
			t.Release()
			return nil, err
		}
		return t, nil
	})
}

// exchange enters the group and the operation, and then calls f.
func (s *Step) exchange(ctx context.Context, o Operation, what operation, isSource bool, f func(x *exchange, source int) (*tensor.Tensor, error)) (*tensor.Tensor, error) {
	if o.GroupSize <= 0 {
		return nil, status.Errorf(status.InvalidArgument, "group_size must be positive integer but got %d", o.GroupSize)
	}
	waiting, stop := s.within(ctx, timeout{o.Timeout, timedOutWaiting})
	defer stop()
	m, err := s.join(waiting, o.Name, o.Device, groupKey{o.GroupKey, o.GroupSize}, what.kind, s.c.opts.LeaderTimeout)
	if err != nil {
		return nil, err
	}
	key := instanceKey{group: m.key, instance: o.InstanceKey}
	if strings.Contains(o.Name, "DTensor") { // its instances belong to a step
		key.step = s.id
	}
	rank := m.rank(o.Device)
	exec := execKey(m.key, o.InstanceKey, o.Frame, o.Iter)
	source, err := s.confirm(waiting, m, o.Name, exec, entry{key: key, what: what, rank: rank, isSource: isSource})
	if err != nil {
		return nil, err
	}
	stop()
	running, stop := s.within(ctx, timeout{o.Timeout, timedOutRunning})
	defer stop()
	return f(s.newExchange(running, m, rank, exec, s.abort), source)
}
