package ops

import (
	"cmp"
	"fmt"
	"sync"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

// location is where a resource is in the containers of its sessions.
type location struct {
	resources *resources
	container string
	key       resourceName
}

// at returns the place; it makes a struct that has one an object.
func (p *location) at() *location { return p }

// remove takes the resource out of its container. It reports whether it was there.
func (p *location) remove() bool { return p.resources.remove(p.container, p.key) }

// object is a resource that a node makes and others find by its handle: a queue, an accumulator or a lookup table. Nodes of the
// first version of an op give a reference to two strings, the container and the name.
type object struct {
	location
	held      *tensor.Buffer // counts the object itself; released by drop
	shown     string         // the container as texts have it
	reference *graph.Variable
}

// Retain implements graph.Opaque. The container owns the object, and its handles do not count.
func (o *object) Retain() {}

// Release implements graph.Opaque.
func (o *object) Release() {}

func (o *object) self() *object { return o }

// holder is a resource that is an object.
type holder interface {
	resource
	graph.Opaque
	at() *location
	self() *object
}

// objectKernel is the kernel of a node that makes an object.
type objectKernel struct {
	state     *State
	container string
	kind      string
	name      string // shared_name, or one that no other node has
	reference bool
	shown     string // the container as a reference has it
	// make makes the object, check compares one that exists with the node.
	make  func() (holder, error)
	check func(h holder) error
	close func()
}

// privateNode is what an object without a shared_name belongs to, in one session.
type privateNode struct{ device, name, op string }

// newObject returns the kernel of a node, without make and check. An object without a shared_name belongs
// to the node in all graphs of the session. As in TensorFlow it is in the container all the same, by a name that
// no other node of the process has.
func newObject(n *graph.Node, s *State, kind string) *objectKernel {
	k := &objectKernel{
		state: s, container: n.Text("container"), kind: kind, name: n.Text("shared_name"), reference: n.OpDef.GetOutputArg()[0].GetIsRef(),
		shown: shownContainer(n), close: func() {},
	}
	if k.name == "" && n.Bool("use_node_name_sharing") {
		k.name = n.Name
	}
	if k.name != "" {
		return k
	}
	private := s.private.take(privateNode{n.Device, n.Name, n.Op}, func() *location {
		name := fmt.Sprintf("_%d_%s", s.registry.objects.Add(1)-1, n.Name)
		return &location{s.resources, k.container, resourceName{kind, name}}
	})
	k.name, k.container = private.value.key.name, private.value.container
	k.close = sync.OnceFunc(func() {
		if forgotten, ok := s.private.put(private); ok {
			forgotten.remove()
		}
	})
	return k
}

// Close gives an object without a shared_name back to the session.
func (k *objectKernel) Close() error { k.close(); return nil }

// Compute implements graph.Kernel. The object is looked up each time, since a reset of the container may
// have removed the one of the last step.
func (k *objectKernel) Compute(c *graph.Context) error {
	key := resourceName{k.kind, k.name}
	r, err := k.state.find(k.container, key, func() (resource, error) { return k.create(c, key) })
	if err != nil {
		return err
	}
	h, ok := r.(holder)
	if !ok {
		return status.Errorf(status.Internal, "the %T %q is no object", r, k.name)
	}
	if err := k.check(h); err != nil {
		return err
	}
	if k.reference {
		c.Outputs[0] = graph.Value{Var: h.self().reference}
	} else {
		c.Outputs[0] = graph.Value{Opaque: h}
	}
	return nil
}

// create makes the object, which the memory of the step's server counts.
func (k *objectKernel) create(c *graph.Context, key resourceName) (resource, error) {
	held, err := tensor.Reserve(c.Step.Allocator, objectBytes+int64(len(k.name)+len(k.container)))
	if err != nil {
		return nil, err
	}
	h, err := k.make()
	if err != nil {
		held.Release()
		return nil, err
	}
	o := h.self()
	o.location, o.held, o.shown = location{k.state.resources, k.container, key}, held, k.shown
	if o.reference, err = newReference(h, k.shown, k.name); err != nil {
		held.Release()
		return nil, err
	}
	return h, nil
}

// shownContainer returns the container of a node as a reference has it. As in TensorFlow the default
// container of a task has the name of its job there.
func shownContainer(n *graph.Node) string {
	if c := n.Text("container"); c != "" {
		return c
	}
	if d, err := cluster.ParseDevice(n.Device); err == nil {
		return d.Task.Job
	}
	return defaultContainer
}

// newReference returns the reference to the container and the name of an object.
func newReference(h holder, container, name string) (*graph.Variable, error) {
	t, err := tensor.FromStrings(tensor.Vector(2), []string{container, name})
	if err != nil {
		return nil, err
	}
	v := &graph.Variable{DType: tensor.String, Name: name, Object: h}
	return v, v.Update(func(*tensor.Tensor) (*tensor.Tensor, error) { return t, nil })
}

// objectAt returns the object of input 0.
func objectAt[T holder](c *graph.Context, what string) (T, error) {
	of := c.Inputs[0].Opaque
	if v := c.Inputs[0].Var; v != nil {
		of = v.Object
	}
	h, ok := of.(T)
	if !ok {
		return h, invalid("%s is not %s", argName(c, 0), what)
	}
	return h, nil
}

// errObjectGone is the error of what uses an object that was dropped.
func errObjectGone(what, name string) error {
	return status.Errorf(status.Aborted, "%s '%s' was removed by a reset of its container or the end of its session", what, name)
}

// checkSignature compares the types of a node with those that its object wants.
func checkSignature(n *graph.Node, in, out []tensor.DType) error {
	have, want := typesText(n.InTypes)+"->"+typesText(n.OutTypes), typesText(in)+"->"+typesText(out)
	if have != want {
		return invalid("Signature mismatch, have: %s expected: %s", have, want)
	}
	return nil
}

// signature returns the types of the inputs of a node: that of its handle, and more.
func (o *object) inputs(n *graph.Node, more ...tensor.DType) []tensor.DType {
	return append([]tensor.DType{n.InTypes[0]}, more...)
}

// overhead counts what the elements of an object take beside their tensors, in blocks.
type overhead struct {
	least int64 // bytes of a block; overheadBlock when 0

	mu       sync.Mutex // guards the fields below
	used     int64
	reserved int64
	blocks   []block
}

// block is memory that an overhead has reserved.
type block struct {
	held *tensor.Buffer
	size int64
}

// overheadBlock is how many bytes are reserved at a time, or as many as are needed.
const overheadBlock = 64 << 10

// add counts n bytes, before they are used.
func (o *overhead) add(a tensor.Allocator, n int64) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.used+n > o.reserved {
		size := max(cmp.Or(o.least, overheadBlock), o.used+n-o.reserved)
		held, err := tensor.Reserve(a, size)
		if err != nil {
			return err
		}
		o.blocks = append(o.blocks, block{held, size})
		o.reserved += size
	}
	o.used += n
	return nil
}

// give gives n bytes back.
func (o *overhead) give(n int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.used -= n
	for last := len(o.blocks) - 1; last >= 0 && o.used <= o.reserved-o.blocks[last].size; last-- {
		o.reserved -= o.blocks[last].size
		o.blocks[last].held.Release()
		o.blocks[last] = block{}
		o.blocks = o.blocks[:last]
	}
}

// all gives everything back, when nobody uses o any more.
func (o *overhead) all() { o.give(o.used) }
