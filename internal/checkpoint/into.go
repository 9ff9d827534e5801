package checkpoint

import (
	"iter"
	"maps"
	"slices"

	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// Pulls into memory of the caller's (PullRequest.Into). A tensor, or each piece of it, is received
// straight into its memory, and its digest is checked there (places.go). When a session fails, a peer
// may still write to the memory for some seconds (rendezvous.Into); the next session waits for that.

// checkInto checks the memory that the caller gives, before anything is transferred.
func (pl *pull) checkInto() error {
	if len(pl.req.Into) == 0 {
		return nil
	}
	m := pl.manifest
	entries := make(map[string]*TensorInfo, len(m.Entries))
	for i := range m.Entries {
		entries[m.Entries[i].Name] = &m.Entries[i]
	}
	names := slices.Sorted(maps.Keys(pl.req.Into))
	owner := make(map[*tensor.Buffer]string, len(names))
	for _, name := range names {
		e, dst := entries[name], pl.req.Into[name]
		switch {
		case e == nil:
			return status.Errorf(status.InvalidArgument, "Into has memory for tensor %s, which publication %s does not have; %s",
				quote(name), quote(m.Name), nearest(name, maps.Keys(entries)))
		case dst == nil:
			return status.Errorf(status.InvalidArgument, "Into has no memory for tensor %s: its value is nil", quote(name))
		case dst.DType() != e.DType || !dst.Shape().Equal(e.Shape):
			return status.Errorf(status.InvalidArgument, "tensor %s is a %v%v, and its memory in Into is a %v", quote(name), e.DType, e.Shape, dst)
		}
		if _, err := rendezvous.NewInto(dst); err != nil {
			return wrap("tensor "+quote(name), err)
		}
		if other, twice := owner[dst.Buffer()]; twice {
			return status.Errorf(status.InvalidArgument, "Into has the same memory for tensors %s and %s", quote(other), quote(name))
		}
		owner[dst.Buffer()] = name
		if !dst.Buffer().Unique() {
			return status.Errorf(status.FailedPrecondition, "the memory of tensor %s in Into has other references than the caller's: "+
				"it was sent, or an earlier pull or receive may still write to it; wait until Buffer().Unique() reports true", quote(name))
		}
	}
	if len(pl.req.Tensors) == 0 {
		pl.req.Tensors = names
	}
	return nil
}

// chosenInto checks that each tensor that has memory is one of those to pull.
func (pl *pull) chosenInto() error {
	for name := range pl.req.Into {
		if !slices.ContainsFunc(pl.chosen, func(i int) bool { return pl.manifest.Entries[i].Name == name }) {
			return status.Errorf(status.InvalidArgument, "Into has memory for tensor %s, which is not among the tensors to pull", quote(name))
		}
	}
	return nil
}

// undefined adds to the error of a pull into memory that the memory may have anything.
func (pl *pull) undefined(err error) error {
	if err == nil || len(pl.req.Into) == 0 || pl.manifest == nil {
		return err
	}
	return status.From(err).WithSuffix("; the content of the memory of tensors that were not yielded (Into) is undefined")
}

// TensorsFor returns memory for tensors of a publication, by name, as PullRequest.Into takes it.
// The caller releases each; after an error there is none. Choose the tensors from
// Manifest.Entries.
func TensorsFor(entries iter.Seq[TensorInfo], a tensor.Allocator) (map[string]*tensor.Tensor, error) {
	into := make(map[string]*tensor.Tensor)
	for e := range entries {
		t, err := tensor.Allocate(a, e.DType, e.Shape)
		if err != nil {
			for _, t := range into {
				t.Release()
			}
			return nil, wrap("memory for tensor "+quote(e.Name), err)
		}
		into[e.Name] = t.Named(e.Name)
	}
	return into, nil
}
