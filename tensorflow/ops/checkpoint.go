package ops

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
	"github.com/tryst-rdma/tryst/tensorflow/ops/internal/bundle"
)

// checkpointOps are those of a Saver. Codes and texts of errors are TensorFlow's.
func checkpointOps() []entry {
	const inputs = `(prefix: string, tensor_names: string, shape_and_slices: string`
	return []entry{
		{`SaveV2` + inputs + `, tensors: dtypes); dtypes: list(type) >= 1; stateful`, newSave},
		{`RestoreV2` + inputs + `) -> (tensors: dtypes); dtypes: list(type) >= 1; stateful`, newRestore},
		{`MergeV2Checkpoints(checkpoint_prefixes: string, destination_prefix: string); delete_old_dirs: bool = true; ` +
			`allow_missing_files: bool = false; stateful`, newMerge},
		{`ShardedFilename(basename: string, shard: int32, num_shards: int32) -> (filename: string)`, always(shardedFilename)},
	}
}

// fixedInputs are the inputs before the tensors: prefix, names, parts.
const fixedInputs = 3

// request is what SaveV2 and RestoreV2 are to do: a tensor has a name, and a description of a part, which may be empty.
type request struct {
	prefix       bundle.Prefix
	names, parts []string
}

// newRequest checks the first inputs. tensors is how many there are.
func newRequest(c *graph.Context, f *files, tensors int) (r request, err error) {
	prefix, names, parts := c.Input(0), c.Input(1), c.Input(2)
	n := names.Shape().Elements()
	switch {
	case prefix.Shape().Elements() != 1:
		return r, invalid("Input prefix should have a single element, got %d instead.", prefix.Shape().Elements())
	case names.Shape().Rank() != 1 || parts.Shape().Rank() != 1:
		return r, invalid("Input tensor_names and shape_and_slices should be an 1-D tensors, got %s and %s instead.", names.Shape(), parts.Shape())
	case n != parts.Shape().Elements():
		return r, invalid("tensor_names and shape_and_slices have different number of elements: %d vs. %d", n, parts.Shape().Elements())
	case n != int64(tensors):
		return r, invalid("Got %d tensor names but %d tensors.", n, tensors)
	}
	r.names, r.parts = names.Elements(), parts.Elements()
	r.prefix, err = f.prefix(prefix.Elements()[0])
	return r, err
}

// movableTypes refuses types that no checkpoint of this package has.
func movableTypes(types []tensor.DType) error {
	for _, d := range types {
		if !movable(d.Base()) {
			return noType("dtypes", d)
		}
	}
	return nil
}

func newSave(n *graph.Node, s *State) (graph.Kernel, error) {
	if len(n.InTypes) >= fixedInputs {
		if err := movableTypes(n.InTypes[fixedInputs:]); err != nil {
			return nil, err
		}
	}
	return newFileKernel(n, s, func(c *graph.Context, f *files) error {
		r, err := newRequest(c, f, len(c.Inputs)-fixedInputs)
		if err != nil {
			return err
		}
		w, err := bundle.NewWriter(c.Ctx, r.prefix, c.Step.Allocator)
		if err != nil {
			return err
		}
		defer w.Close()
		for i, name := range r.names {
			if err := save(w, name, r.parts[i], c.Input(fixedInputs+i)); err != nil {
				return err
			}
		}
		return w.Finish(c.Ctx)
	})
}

// save writes one tensor.
func save(w *bundle.Writer, name, part string, t *tensor.Tensor) error {
	if t == nil {
		return status.Errorf(status.Internal, "%s has no tensor", name)
	}
	if part == "" {
		return w.Add(name, t)
	}
	whole, slice, shape, err := bundle.ParseSpec(part)
	if err != nil {
		return err
	}
	if !shape.Equal(t.Shape()) {
		return invalid("Slice in shape_and_slice specification does not match the shape of the tensor to  save: %s, tensor: %s", part, t.Shape())
	}
	return w.AddSlice(name, whole, slice, t)
}

func newRestore(n *graph.Node, s *State) (graph.Kernel, error) {
	if err := movableTypes(n.OutTypes); err != nil {
		return nil, err
	}
	return newFileKernel(n, s, func(c *graph.Context, f *files) error {
		if names := c.Input(1).Shape().Elements(); names != int64(len(c.Outputs)) {
			return invalid("Got %d tensor names, but %d expected dtypes.", names, len(c.Outputs))
		}
		q, err := newRequest(c, f, len(c.Outputs))
		if err != nil {
			return err
		}
		exists, err := q.prefix.Exists()
		if err != nil {
			return err
		}
		if !exists {
			return status.Errorf(status.NotFound, "Unsuccessful TensorSliceReader constructor: Failed to find any matching files for %s", q.prefix.Name)
		}
		r, err := bundle.Open(q.prefix, c.Step.Allocator)
		if err != nil {
			return err
		}
		defer r.Close()
		if err := c.Scratch(8 * int64(len(q.names))); err != nil {
			return err
		}
		order := make([]int, len(q.names)) // of the index, each of whose blocks is then read once
		for i := range order {
			order[i] = i
		}
		slices.SortFunc(order, func(i, j int) int { return cmp.Or(strings.Compare(q.names[i], q.names[j]), i-j) })
		for _, i := range order {
			t, err := restore(c, r, q.names[i], q.parts[i], c.Node.OutTypes[i])
			if err != nil {
				return err
			}
			c.Set(i, t)
		}
		return nil
	})
}

// restore reads one tensor.
func restore(c *graph.Context, r *bundle.Reader, name, part string, want tensor.DType) (*tensor.Tensor, error) {
	e, err := r.Lookup(name)
	if err != nil {
		return nil, err
	}
	if e.DType != want {
		return nil, invalid("tensor_name = %s; expected dtype %s does not equal original dtype %s", name, want, e.DType)
	}
	if part == "" {
		return r.Read(c.Ctx, name, e, nil)
	}
	whole, slice, _, err := bundle.ParseSpec(part)
	if err != nil {
		return nil, err
	}
	if !whole.Equal(e.Shape) {
		return nil, invalid("tensor_name = %s; shape in shape_and_slice spec %s does not match the shape stored in checkpoint: %s", name, whole, e.Shape)
	}
	return r.Read(c.Ctx, name, e, slice)
}

func newMerge(n *graph.Node, s *State) (graph.Kernel, error) {
	remove, missing := n.Bool("delete_old_dirs"), n.Bool("allow_missing_files")
	return newFileKernel(n, s, func(c *graph.Context, f *files) error {
		prefixes, destination := c.Input(0), c.Input(1)
		switch {
		case prefixes.Shape().Rank() != 1:
			return invalid("Input checkpoint_prefixes should be an 1-D tensor, got %s instead.", prefixes.Shape())
		case destination.Shape().Rank() != 0:
			return invalid("Input destination_prefix should be a scalar tensor, got %s instead.", destination.Shape())
		}
		if err := c.Scratch(prefixBytes * prefixes.Shape().Elements()); err != nil {
			return err
		}
		to, err := f.prefix(destination.Elements()[0])
		if err != nil {
			return err
		}
		from := make([]bundle.Prefix, prefixes.Shape().Elements())
		for i, name := range prefixes.Elements() {
			if from[i], err = f.prefix(name); err != nil {
				return err
			}
		}
		if err := bundle.Merge(c.Ctx, from, to, missing, c.Step.Allocator); err != nil {
			return err
		}
		for _, p := range from {
			if remove {
				_ = bundle.RemoveDirectory(p, to) // as in TensorFlow: one that has other files stays
			}
		}
		return nil
	})
}

func shardedFilename(c *graph.Context) error {
	for i := range c.Inputs {
		if c.Input(i).Shape().Rank() != 0 {
			return invalid("%s must be a scalar, got shape %s", argName(c, i), c.Input(i).Shape())
		}
	}
	shard, err := scalarOf[int32](c, 1)
	if err != nil {
		return err
	}
	count, err := scalarOf[int32](c, 2)
	if err != nil {
		return err
	}
	base := c.Input(0).Elements()[0]
	if err := c.Scratch(int64(len(base))); err != nil {
		return err
	}
	return setStrings(c, 0, tensor.Shape{}, func(int) string { return fmt.Sprintf("%s-%05d-of-%05d", base, shard, count) })
}
