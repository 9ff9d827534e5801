package ops

import (
	"maps"
	"slices"
	"sync/atomic"

	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

// NewFunc makes the kernel of a node. s is the state of the session that the graph belongs to. A
// type or an attribute that the kernel does not support is Unimplemented; Registry adds the name of
// the node and what the user can do.
type NewFunc func(n *graph.Node, s *State) (graph.Kernel, error)

// Registry is the ops of a process with their kernels: the kernel set "go" (graph.KernelSet). The
// ops of an importer are added with Register before the registry is given to a server.
type Registry struct {
	ops     map[string]*op
	objects atomic.Int64 // that have got a name of their own so far
	files   *files       // nil when graphs may use none
}

type op struct {
	def *tfpb.OpDef
	new NewFunc
}

// New returns a registry with the ops of this package.
func New() *Registry {
	r := &Registry{ops: make(map[string]*op)}
	for _, family := range [][]entry{
		communicationOps(), basicOps(), variableOps(), trainingOps(), elementwiseOps(), fillOps(), castOps(), randomOps(),
		shapeOps(), arrayOps(), joinOps(), sliceOps(), matmulOps(), reduceOps(), networkOps(), gatherOps(), scatterOps(), segmentOps(), uniqueOps(),
		sparseOps(), scanOps(), summaryOps(), stringOps(), printOps(), queueOps(), accumulatorOps(), lookupOps(), stackOps(), tensorArrayOps(), tensorListOps(),
		checkpointOps(),
	} {
		for _, e := range family {
			if err := r.Register(e.def, e.new); err != nil {
				panic(err) //nolint:forbidigo // a notation in this package is wrong; its tests call New
			}
		}
	}
	return r
}

// entry is an op of this package.
type entry struct {
	def string
	new NewFunc
}

// Register adds an op in the notation of ParseDef, and the function that makes its kernels. An op
// that exists already is AlreadyExists: two kernels of one op would depend on the order of calls.
// Register must not be called when the registry is in use.
func (r *Registry) Register(notation string, new NewFunc) error {
	def, err := ParseDef(notation)
	if err != nil {
		return err
	}
	return r.RegisterDef(def, new)
}

// RegisterDef is Register with a definition. def belongs to the registry afterwards.
func (r *Registry) RegisterDef(def *tfpb.OpDef, new NewFunc) error {
	if _, ok := r.ops[def.GetName()]; ok {
		return status.Errorf(status.AlreadyExists, "op %s is registered already", def.GetName())
	}
	r.ops[def.GetName()] = &op{def: def, new: new}
	return nil
}

// Name implements graph.KernelSet.
func (r *Registry) Name() string { return "go" }

// OpDef implements graph.KernelSet.
func (r *Registry) OpDef(op string) *tfpb.OpDef {
	if o := r.ops[op]; o != nil {
		return o.def
	}
	return nil
}

// Ops returns the names of all ops in alphabetical order.
func (r *Registry) Ops() []string { return slices.Sorted(maps.Keys(r.ops)) }

// NewState implements graph.KernelSet.
func (r *Registry) NewState() (graph.State, error) {
	return &State{registry: r, resources: &resources{containers: make(map[string]map[resourceName]resource)}}, nil
}

// whatToDo ends each refusal.
const whatToDo = "use tryst-tensorflow, whose kernels are TensorFlow's, or register a kernel (docs/ops.md)"

// NewKernel implements graph.State.
func (s *State) NewKernel(n *graph.Node) (graph.Kernel, error) {
	o := s.registry.ops[n.Op]
	if o == nil {
		return nil, graph.NodeError(n.Name, status.Errorf(status.Unimplemented,
			"node %q: the kernel set go has no op %s: %s", n.Name, n.Op, whatToDo))
	}
	k, err := o.new(n, s)
	if status.CodeOf(err) == status.Unimplemented {
		return nil, graph.NodeError(n.Name, status.Errorf(status.Unimplemented, "node %q, op %s: %s: %s",
			n.Name, n.Op, status.From(err).Message(), whatToDo))
	}
	if err != nil {
		return nil, graph.NodeError(n.Name, err)
	}
	return k, nil
}

// noType is the error of a type that a kernel does not support.
func noType(attr string, d tensor.DType) error {
	return status.Errorf(status.Unimplemented, "the kernel set go has no kernel for %s = %s", attr, d)
}

// refused is the error of an attribute that a kernel does not support.
func refused(format string, args ...any) error {
	return status.Errorf(status.Unimplemented, "the kernel set go has no kernel for "+format, args...)
}
