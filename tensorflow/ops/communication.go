package ops

import (
	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

func communicationOps() []entry {
	const attrs = `tensor_name: string; send_device: string; send_device_incarnation: int; recv_device: string; ` +
		`client_terminated: bool = false; stateful`
	return []entry{
		{`_Send(tensor: T); T: type; ` + attrs, newSend},
		{`_HostSend(tensor: T); T: type; ` + attrs, newSend},
		{`_Recv() -> (tensor: tensor_type); tensor_type: type; ` + attrs, newRecv},
		{`_HostRecv() -> (tensor: tensor_type); tensor_type: type; ` + attrs, newRecv},
	}
}

// endpoint is what the two kernels have in common: the key of the value.
type endpoint struct {
	src, dst    cluster.Device
	incarnation uint64
	name        string
	top         rendezvous.Key // the key outside loops
}

// newEndpoint returns the endpoint of a node for values of a type.
func newEndpoint(n *graph.Node, t tensor.DType) (*endpoint, error) {
	if t == tensor.Resource || t == tensor.Variant {
		return nil, status.Errorf(status.Unimplemented,
			"a value of type %s would go from %s to %s, and it cannot leave its device: place the node that makes it on the device of those that use it", t, n.Text("send_device"), n.Text("recv_device"))
	}
	e := &endpoint{incarnation: uint64(n.Int("send_device_incarnation")), name: n.Text("tensor_name")}
	var err error
	if e.src, err = cluster.ParseDevice(n.Text("send_device")); err != nil {
		return nil, status.Errorf(status.InvalidArgument, "the attribute send_device: %w", err)
	}
	if e.dst, err = cluster.ParseDevice(n.Text("recv_device")); err != nil {
		return nil, status.Errorf(status.InvalidArgument, "the attribute recv_device: %w", err)
	}
	e.top, err = e.newKey(rendezvous.FrameIter{})
	return e, err
}

func (e *endpoint) newKey(fi rendezvous.FrameIter) (rendezvous.Key, error) {
	return rendezvous.NewKey(e.src, e.incarnation, e.dst, e.name, fi)
}

func (e *endpoint) key(fi rendezvous.FrameIter) (rendezvous.Key, error) {
	if fi == (rendezvous.FrameIter{}) {
		return e.top, nil
	}
	return e.newKey(fi)
}

type sendKernel struct{ endpoint }

func newSend(n *graph.Node, _ *State) (graph.Kernel, error) {
	e, err := newEndpoint(n, n.Type("T"))
	if err != nil {
		return nil, err
	}
	return &sendKernel{*e}, nil
}

// Compute implements graph.Kernel. A dead value is sent as one, so that the receiver of a branch that
// was not taken does not wait.
func (k *sendKernel) Compute(c *graph.Context) error {
	key, err := k.key(c.FrameIter)
	if err != nil {
		return err
	}
	return c.Step.Rendezvous.Send(key, rendezvous.Args{}, c.Input(0), c.InDead)
}

type recvKernel struct{ endpoint }

func newRecv(n *graph.Node, _ *State) (graph.Kernel, error) {
	e, err := newEndpoint(n, n.Type("tensor_type"))
	if err != nil {
		return nil, err
	}
	return &recvKernel{*e}, nil
}

// Compute implements graph.Kernel, for a caller that can wait.
func (k *recvKernel) Compute(c *graph.Context) error {
	done := make(chan error, 1)
	k.ComputeAsync(c, func(err error) { done <- err })
	return <-done
}

// ComputeAsync implements graph.AsyncKernel.
func (k *recvKernel) ComputeAsync(c *graph.Context, done func(error)) {
	key, err := k.key(c.FrameIter)
	if err != nil {
		done(err)
		return
	}
	c.Step.Rendezvous.RecvAsync(c.Ctx, key, rendezvous.Args{}, func(v rendezvous.Value, _ rendezvous.Args, err error) {
		if err == nil {
			err = setReceived(c, v)
		}
		done(err)
	})
}

// setReceived makes a received value the output.
func setReceived(c *graph.Context, v rendezvous.Value) error {
	if v.Dead {
		v.Tensor.Release()
		c.Outputs[0] = graph.Value{Dead: true}
		return nil
	}
	if want := c.Node.Type("tensor_type"); v.Tensor.DType() != want {
		have := v.Tensor.DType()
		v.Tensor.Release()
		return status.Errorf(status.Internal, "the node receives %s, but %s was sent", want, have)
	}
	c.Set(0, v.Tensor)
	return nil
}
