package collective

import (
	"strings"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
	"github.com/tryst-rdma/tryst/tensorflow/ops"
)

// Register adds the collective operations of TensorFlow to the kernels of a process, each in its
// first and second version. The graph.Step of a run has the Collectives of the process.
func Register(r *ops.Registry) error {
	const (
		v1 = `group_size: int; group_key: int; instance_key: int; `
		v2 = `group_size: int32, group_key: int32, instance_key: int32`
		// The end of all, in the order of TensorFlow's definitions.
		hints    = `communication_hint: string = "auto"; timeout_seconds: float = 0; `
		order    = `is_stateless: bool = false; Nordering_token: int >= 0 = 0; `
		reducing = `T: {bfloat16, float, half, double, int32, int64}; `
		sending  = `T: {bool, float, half, double, int32, int64}; `
		gathered = `T: {float, half, double, int32, int64}; `
		merging  = `merge_op: {"Min", "Max", "Mul", "Add"}; final_op: {"Id", "Div"}; `
	)
	for _, k := range []struct {
		notation string
		new      newKernel
	}{
		{`CollectiveReduce(input: T) -> (data: T); ` + reducing + v1 + merging + `subdiv_offsets: list(int); wait_for: list(int) = []; ` + hints + `stateful`, newReduce},
		{`CollectiveReduceV2(input: T, ` + v2 + `, ordering_token: Nordering_token*resource) -> (data: T); ` + reducing + merging + hints + order + `max_subdivs_per_device: int = -1; stateful`, newReduce},
		{`CollectiveGather(input: T) -> (data: T); ` + gathered + v1 + `shape: shape; ` + hints + `stateful`, newGather},
		{`CollectiveGatherV2(input: T, ` + v2 + `, ordering_token: Nordering_token*resource) -> (data: T); ` + gathered + hints + order + `stateful`, newGather},
		{`CollectiveBcastSend(input: T) -> (data: T); ` + sending + v1 + `shape: shape; ` + hints + `stateful`, newBcastSend},
		{`CollectiveBcastSendV2(input: T, ` + v2 + `) -> (data: T); ` + sending + hints + `stateful`, newBcastSend},
		{`CollectiveBcastRecv() -> (data: T); ` + sending + v1 + `shape: shape; ` + hints + `stateful`, newBcastRecv},
		{`CollectiveBcastRecvV2(` + v2 + `, shape: Tshape) -> (data: T); ` + sending + `Tshape: {int32, int64} = int32; ` + hints + `stateful`, newBcastRecv},
	} {
		def, err := ops.ParseDef(k.notation)
		if err != nil {
			return err
		}
		def.IsDistributedCommunication = true
		if err := r.RegisterDef(def, k.new.kernel); err != nil {
			return err
		}
	}
	return nil
}

// newKernel returns what the kernel of a node computes.
type newKernel func(n *graph.Node) (compute, error)

// compute is one run of an operation whose group is complete.
type compute func(r *run) (*tensor.Tensor, error)

func (f newKernel) kernel(n *graph.Node, _ *ops.State) (graph.Kernel, error) {
	device, err := cluster.ParseDevice(n.Device)
	if err != nil {
		return nil, err
	}
	k := &kernel{device: device, timeout: time.Duration(float64(n.Float("timeout_seconds")) * float64(time.Second))}
	if !strings.HasSuffix(n.Op, "V2") {
		k.first = &params{group: groupKey{int32(n.Int("group_key")), int(n.Int("group_size"))}, instance: int32(n.Int("instance_key"))} //nolint:gosec // TensorFlow has int32
	}
	k.compute, err = f(n)
	return k, err
}

// params say which operation of which group it is. In the first version they are attributes, in the
// second one inputs.
type params struct {
	group    groupKey
	instance int32
}

// kernel is the graph.AsyncKernel of all operations.
type kernel struct {
	device  cluster.Device
	timeout time.Duration
	first   *params // of the first version
	compute compute
}

// Compute implements graph.Kernel.
func (k *kernel) Compute(c *graph.Context) error {
	done := make(chan error, 1)
	k.ComputeAsync(c, func(err error) { done <- err })
	return <-done
}

// ComputeAsync implements graph.AsyncKernel. The operation runs on a goroutine that Collectives.Close
// waits for.
func (k *kernel) ComputeAsync(c *graph.Context, done func(error)) {
	all, ok := c.Step.Collectives.(*Collectives)
	if !ok || all == nil {
		done(status.Errorf(status.Internal, "Failed to get CollectiveExecutor from OpKernelContext for Op %s", c.Node.Name))
		return
	}
	if c.Step.ID == groupStep { // an error would end all Groups of this process
		done(status.Errorf(status.InvalidArgument, "Collective Op %s runs in step %d, which belongs to the groups of Go programs; use another step_id", c.Node.Name, groupStep))
		return
	}
	if err := all.enter(); err != nil {
		done(err)
		return
	}
	go func() {
		defer all.work.Done()
		out, err := k.run(c, all.Step(c.Step.ID))
		if err == nil {
			c.Set(0, out)
		}
		done(err)
	}()
}

// run is one run of a kernel.
type run struct {
	*kernel
	c *graph.Context
	s *Step
	p params
}

// run runs the operation. An error ends all operations of the step, here and at the others: the
// step fails as a whole.
func (k *kernel) run(c *graph.Context, s *Step) (*tensor.Tensor, error) {
	r := &run{kernel: k, c: c, s: s}
	var out *tensor.Tensor
	err := guard(func() (err error) {
		out, err = r.all()
		return err
	})
	if err != nil {
		s.abort(err)
	}
	return out, err
}

func (r *run) all() (*tensor.Tensor, error) {
	p, err := r.params()
	if err != nil {
		return nil, err
	}
	r.p = p
	return r.compute(r)
}

// params returns the attributes, or the inputs.
func (r *run) params() (params, error) {
	if r.first != nil {
		return *r.first, nil
	}
	at := 1
	if strings.HasPrefix(r.c.Node.Op, "CollectiveBcastRecv") {
		at = 0
	}
	var numbers [3]int32
	for i, name := range []string{"group_size", "group_key", "instance_key"} {
		t := r.c.Input(at + i)
		if t.Shape().Rank() > 0 {
			return params{}, status.Errorf(status.InvalidArgument, "Unexpected dimensions on input %s, got %v", name, t.Shape())
		}
		v, err := tensor.Values[int32](t)
		if err != nil {
			return params{}, err
		}
		numbers[i] = v[0]
	}
	return params{group: groupKey{numbers[1], int(numbers[0])}, instance: numbers[2]}, nil
}

// exchange enters the group and the operation, and then calls f.
func (r *run) exchange(what operation, isSource bool, f func(x *exchange, source int) (*tensor.Tensor, error)) (*tensor.Tensor, error) {
	if r.p.group.size <= 0 {
		return nil, status.Errorf(status.InvalidArgument, "group_size must be positive integer but got %d", r.p.group.size)
	}
	name := r.c.Node.Name
	ctx, stop := r.s.within(r.c.Ctx, timeout{r.timeout, timedOutWaiting})
	defer stop()
	m, err := r.s.join(ctx, name, r.device, r.p.group, what.kind, r.s.c.opts.LeaderTimeout)
	if err != nil {
		return nil, err
	}
	key := instanceKey{group: m.key, instance: r.p.instance}
	if strings.Contains(name, "DTensor") { // its instances belong to a step
		key.step = r.s.id
	}
	rank := m.rank(r.device)
	exec := execKey(m.key, r.p.instance, r.c.FrameIter.Frame, r.c.FrameIter.Iter)
	source, err := r.s.confirm(ctx, m, name, exec, entry{key: key, what: what, rank: rank, isSource: isSource})
	if err != nil {
		return nil, err
	}
	stop()
	ctx, stop = r.s.within(r.c.Ctx, timeout{r.timeout, timedOutRunning})
	defer stop()
	return f(r.s.newExchange(ctx, m, rank, exec, r.s.abort), source)
}

func newReduce(n *graph.Node) (compute, error) {
	merge, divide, err := parseMerge(n.Text("merge_op"), n.Text("final_op"))
	if err != nil {
		return nil, err
	}
	given := n.Ints("subdiv_offsets")
	limit := int(n.Int("max_subdivs_per_device")) // 0, for the default, in the first version
	return func(r *run) (*tensor.Tensor, error) {
		in := r.c.Input(0)
		return r.exchange(operation{reduction, in.DType(), in.Shape()}, false, func(x *exchange, _ int) (*tensor.Tensor, error) {
			if err := checkOffsets(given, x.m); err != nil {
				return nil, err
			}
			offsets := make([]int, len(given))
			for i, o := range given {
				offsets[i] = int(o)
			}
			if len(offsets) == 0 {
				offsets = subdivisions(x.m, in.Size(), limit)
			}
			return x.allReduce(in, merge, divide, allReduceRings(x.m, x.rank, offsets))
		})
	}, nil
}

func newGather(*graph.Node) (compute, error) {
	return func(r *run) (*tensor.Tensor, error) {
		in := r.c.Input(0)
		shape, err := gatherShape(in.Shape(), max(1, r.p.group.size))
		if err != nil {
			return nil, err
		}
		return r.exchange(operation{gather, in.DType(), shape}, false, func(x *exchange, _ int) (*tensor.Tensor, error) { return x.gather(in) })
	}, nil
}

func newBcastSend(n *graph.Node) (compute, error) {
	declared, err := declaredShape(n)
	if err != nil {
		return nil, err
	}
	return func(r *run) (*tensor.Tensor, error) {
		in := r.c.Input(0)
		if declared != nil && !declared.Equal(in.Shape()) {
			return nil, status.Errorf(status.Internal, "Declared shape of op %s: Broadcast(1) does not match shape of input: %v and %v", n.Name, declared, in.Shape())
		}
		return r.exchange(operation{broadcast, in.DType(), in.Shape()}, true, func(x *exchange, source int) (*tensor.Tensor, error) {
			if err := x.broadcast(in, source); err != nil {
				return nil, err
			}
			return in.Retain(), nil
		})
	}, nil
}

func newBcastRecv(n *graph.Node) (compute, error) {
	declared, err := declaredShape(n)
	if err != nil {
		return nil, err
	}
	dtype := n.Type("T")
	return func(r *run) (*tensor.Tensor, error) {
		shape := declared
		if shape == nil {
			s, err := shapeOf(r.c.Input(3))
			if err != nil {
				return nil, err
			}
			shape = &s
		}
		return r.exchange(operation{broadcast, dtype, *shape}, false, func(x *exchange, source int) (*tensor.Tensor, error) {
			t, err := r.c.Allocate(dtype, *shape)
			if err != nil {
				return nil, err
			}
			if err := x.broadcast(t, source); err != nil {
				t.Release()
				return nil, err
			}
			return t, nil
		})
	}, nil
}

// declaredShape returns the attribute shape of the first version; nil in the second.
func declaredShape(n *graph.Node) (*tensor.Shape, error) {
	if strings.HasSuffix(n.Op, "V2") {
		return nil, nil
	}
	dims, known := n.Shape("shape")
	if !known {
		return nil, status.New(status.InvalidArgument, "the attribute shape must be known")
	}
	s, err := tensor.NewShape(dims...)
	return &s, err
}

// shapeOf returns the shape that a tensor of int32 or int64 has as its elements.
func shapeOf(t *tensor.Tensor) (tensor.Shape, error) {
	if t.Shape().Rank() != 1 {
		return tensor.Shape{}, status.Errorf(status.InvalidArgument, "the input shape must be a vector, got %v", t.Shape())
	}
	if t.DType() == tensor.Int64 {
		dims, err := tensor.Values[int64](t)
		if err != nil {
			return tensor.Shape{}, err
		}
		return tensor.NewShape(dims...)
	}
	v, err := tensor.Values[int32](t)
	if err != nil {
		return tensor.Shape{}, err
	}
	dims := make([]int64, len(v))
	for i, d := range v {
		dims[i] = int64(d)
	}
	return tensor.NewShape(dims...)
}
