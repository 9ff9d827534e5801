package ops

import (
	"fmt"
	"sync/atomic"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

// stepObject is what one step has: a stack, a TensorArray or a TensorList. TensorFlow has the first two in a container that ends with
// the step. Here they have no name by which others find them, and end with the last value that has their handle: at the end of the
// step at the latest. Their elements are tensors, and those of a list lists that are older, so that no object holds itself.
type stepObject struct {
	name     string // in error texts
	held     *tensor.Buffer
	overhead overhead // of the elements
	refs     atomic.Int64
	end      func() // releases the elements
}

// Retain implements graph.Opaque.
func (o *stepObject) Retain() { o.refs.Add(1) }

// Release implements graph.Opaque.
func (o *stepObject) Release() {
	if o.refs.Add(-1) > 0 {
		return
	}
	o.end()
	o.overhead.all()
	o.held.Release()
}

// begin makes o an object with one reference. end releases its elements.
func (o *stepObject) begin(c *graph.Context, name string, end func()) error {
	held, err := tensor.Reserve(c.Step.Allocator, objectBytes+int64(len(name)))
	if err != nil {
		return err
	}
	o.name, o.held, o.end, o.overhead.least = name, held, end, stepBlock
	o.refs.Store(1)
	return nil
}

// numbered returns a name that no other object of the process has, as TensorFlow's texts have it.
func (s *State) numbered(name string) string {
	return fmt.Sprintf("%s_%d", name, s.registry.objects.Add(1)-1)
}

// nameIn returns an attribute of a node that names its object, or the name of the node.
func nameIn(n *graph.Node, attr string) string {
	if name := n.Text(attr); name != "" {
		return name
	}
	return n.Name
}

// sizeOf returns input 0, the size of an object. what is the text of an error.
func sizeOf(c *graph.Context, what string) (int32, error) {
	v, err := inputOf[int32](c, 0)
	if err != nil {
		return 0, err
	}
	if s := c.Input(0).Shape(); s.Rank() != 0 {
		return 0, invalid("%s, but had shape: %s", what, s)
	}
	return v[0], nil
}

// otherOutput is the error of an output that has another type than the node says.
func otherOutput(c *graph.Context, have, want tensor.DType) error {
	return status.Errorf(status.Internal, "Output 0 of type %s does not match declared output type %s for node {{node %s}}", have, want, c.Node.Name)
}
