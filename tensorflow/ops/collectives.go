package ops

import (
	"strings"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/collective"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

// AddCollectives adds the collective operations of TensorFlow to the kernels of a process, each in its
// first and second version. The graph.Step of a run has the Collectives of the process.
func (r *Registry) AddCollectives() error {
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
		new      newCollective
	}{
		{`CollectiveReduce(input: T) -> (data: T); ` + reducing + v1 + merging + `subdiv_offsets: list(int); wait_for: list(int) = []; ` + hints + `stateful`, newCollectiveReduce},
		{`CollectiveReduceV2(input: T, ` + v2 + `, ordering_token: Nordering_token*resource) -> (data: T); ` + reducing + merging + hints + order + `max_subdivs_per_device: int = -1; stateful`, newCollectiveReduce},
		{`CollectiveGather(input: T) -> (data: T); ` + gathered + v1 + `shape: shape; ` + hints + `stateful`, newCollectiveGather},
		{`CollectiveGatherV2(input: T, ` + v2 + `, ordering_token: Nordering_token*resource) -> (data: T); ` + gathered + hints + order + `stateful`, newCollectiveGather},
		{`CollectiveBcastSend(input: T) -> (data: T); ` + sending + v1 + `shape: shape; ` + hints + `stateful`, newCollectiveBcastSend},
		{`CollectiveBcastSendV2(input: T, ` + v2 + `) -> (data: T); ` + sending + hints + `stateful`, newCollectiveBcastSend},
		{`CollectiveBcastRecv() -> (data: T); ` + sending + v1 + `shape: shape; ` + hints + `stateful`, newCollectiveBcastRecv},
		{`CollectiveBcastRecvV2(` + v2 + `, shape: Tshape) -> (data: T); ` + sending + `Tshape: {int32, int64} = int32; ` + hints + `stateful`, newCollectiveBcastRecv},
	} {
		def, err := ParseDef(k.notation)
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

// newCollective returns what the kernel of a node computes.
type newCollective func(n *graph.Node) (collectiveRun, error)

// collectiveRun is one run of an operation.
type collectiveRun func(c *graph.Context, s *collective.Step, o collective.Operation) (*tensor.Tensor, error)

func (f newCollective) kernel(n *graph.Node, _ *State) (graph.Kernel, error) {
	device, err := cluster.ParseDevice(n.Device)
	if err != nil {
		return nil, err
	}
	k := &collectiveKernel{operation: collective.Operation{
		Name: n.Name, Device: device, Timeout: time.Duration(float64(n.Float("timeout_seconds")) * float64(time.Second)),
	}}
	if !isSecond(n) {
		k.operation.GroupKey, k.operation.GroupSize, k.operation.InstanceKey = int32(n.Int("group_key")), int(n.Int("group_size")), int32(n.Int("instance_key")) //nolint:gosec // TensorFlow has int32
	}
	k.compute, err = f(n)
	return k, err
}

// isSecond reports whether a node is of the second version of its op, whose keys are inputs. In the first
// version they are attributes.
func isSecond(n *graph.Node) bool { return strings.HasSuffix(n.Op, "V2") }

// collectiveKernel is the graph.AsyncKernel of all operations.
type collectiveKernel struct {
	operation collective.Operation // in the second version without its keys
	compute   collectiveRun
}

// Compute implements graph.Kernel.
func (k *collectiveKernel) Compute(c *graph.Context) error {
	done := make(chan error, 1)
	k.ComputeAsync(c, func(err error) { done <- err })
	return <-done
}

// ComputeAsync implements graph.AsyncKernel.
func (k *collectiveKernel) ComputeAsync(c *graph.Context, done func(error)) {
	all, ok := c.Step.Collectives.(*collective.Collectives)
	if !ok || all == nil {
		done(status.Errorf(status.Internal, "Failed to get CollectiveExecutor from OpKernelContext for Op %s", c.Node.Name))
		return
	}
	all.Run(c.Node.Name, c.Step.ID, func(s *collective.Step) (*tensor.Tensor, error) {
		o, err := k.of(c)
		if err != nil {
			return nil, err
		}
		return k.compute(c, s, o)
	}, func(out *tensor.Tensor, err error) {
		if err == nil {
			c.Set(0, out)
		}
		done(err)
	})
}

// of returns the operation of one run.
func (k *collectiveKernel) of(c *graph.Context) (collective.Operation, error) {
	o := k.operation
	o.Frame, o.Iter = c.FrameIter.Frame, c.FrameIter.Iter
	if !isSecond(c.Node) {
		return o, nil
	}
	at := 1
	if strings.HasPrefix(c.Node.Op, "CollectiveBcastRecv") {
		at = 0
	}
	var numbers [3]int32
	for i, name := range []string{"group_size", "group_key", "instance_key"} {
		t := c.Input(at + i)
		if t.Shape().Rank() > 0 {
			return o, status.Errorf(status.InvalidArgument, "Unexpected dimensions on input %s, got %v", name, t.Shape())
		}
		v, err := tensor.Values[int32](t)
		if err != nil {
			return o, err
		}
		numbers[i] = v[0]
	}
	o.GroupSize, o.GroupKey, o.InstanceKey = int(numbers[0]), numbers[1], numbers[2]
	return o, nil
}

func newCollectiveReduce(n *graph.Node) (collectiveRun, error) {
	limit := int(n.Int("max_subdivs_per_device")) // 0, for the default, in the first version
	r, err := collective.ParseReduction(n.Text("merge_op"), n.Text("final_op"), n.Ints("subdiv_offsets"), limit)
	if err != nil {
		return nil, err
	}
	return func(c *graph.Context, s *collective.Step, o collective.Operation) (*tensor.Tensor, error) {
		return s.AllReduce(c.Ctx, o, c.Input(0), r)
	}, nil
}

func newCollectiveGather(*graph.Node) (collectiveRun, error) {
	return func(c *graph.Context, s *collective.Step, o collective.Operation) (*tensor.Tensor, error) {
		return s.Gather(c.Ctx, o, c.Input(0))
	}, nil
}

func newCollectiveBcastSend(n *graph.Node) (collectiveRun, error) {
	declared, err := declaredBcastShape(n)
	if err != nil {
		return nil, err
	}
	return func(c *graph.Context, s *collective.Step, o collective.Operation) (*tensor.Tensor, error) {
		in := c.Input(0)
		if declared != nil && !declared.Equal(in.Shape()) {
			return nil, status.Errorf(status.Internal, "Declared shape of op %s: Broadcast(1) does not match shape of input: %v and %v", n.Name, declared, in.Shape())
		}
		if err := s.Send(c.Ctx, o, in); err != nil {
			return nil, err
		}
		return in.Retain(), nil
	}, nil
}

func newCollectiveBcastRecv(n *graph.Node) (collectiveRun, error) {
	declared, err := declaredBcastShape(n)
	if err != nil {
		return nil, err
	}
	dtype := n.Type("T")
	return func(c *graph.Context, s *collective.Step, o collective.Operation) (*tensor.Tensor, error) {
		shape := declared
		if shape == nil {
			given, err := shapeInput(c.Input(3))
			if err != nil {
				return nil, err
			}
			shape = &given
		}
		return s.Receive(c.Ctx, o, c.Step.Allocator, dtype, *shape)
	}, nil
}

// declaredBcastShape returns the attribute shape of the first version; nil in the second.
func declaredBcastShape(n *graph.Node) (*tensor.Shape, error) {
	if isSecond(n) {
		return nil, nil
	}
	dims, known := n.Shape("shape")
	if !known {
		return nil, status.New(status.InvalidArgument, "the attribute shape must be known")
	}
	s, err := tensor.NewShape(dims...)
	return &s, err
}

// shapeInput returns the shape that a tensor of int32 or int64 has as its elements.
func shapeInput(t *tensor.Tensor) (tensor.Shape, error) {
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
