package ops

import (
	"slices"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

func lookupOps() []entry {
	const source = `container: string = ""; shared_name: string = ""; use_node_name_sharing: bool = false; key_dtype: type; value_dtype: type`
	var list []entry
	for _, version := range []struct{ suffix, handle, flag string }{{"", "Ref(string)", ""}, {"V2", "resource", "; stateful"}} {
		for _, kind := range []struct{ name, more string }{
			{"HashTable", ""}, {"MutableHashTable", ""}, {"MutableHashTableOfTensors", "; value_shape: shape = []"},
		} {
			list = append(list, entry{kind.name + version.suffix + "() -> (table_handle: " + version.handle + "); " + source + kind.more + "; stateful", newTable})
		}
		op := func(name, inputs, rest string, new NewFunc) {
			list = append(list, entry{name + version.suffix + "(table_handle: " + version.handle + inputs + ")" + rest + version.flag, new})
		}
		const in = "; Tin: type; Tout: type"
		op("LookupTableFind", ", keys: Tin, default_value: Tout", " -> (values: Tout)"+in, always(tableFind))
		op("LookupTableInsert", ", keys: Tin, values: Tout", in, always(tableInsert))
		op("LookupTableImport", ", keys: Tin, values: Tout", in, always(tableImport))
		op("LookupTableExport", "", " -> (keys: Tkeys, values: Tvalues); Tkeys: type; Tvalues: type", always(tableExport))
		op("LookupTableSize", "", " -> (size: int64)", always(tableSize))
		op("InitializeTable", ", keys: Tkey, values: Tval", "; Tkey: type; Tval: type", always(initializeTable))
	}
	return append(list, entry{`LookupTableRemoveV2(table_handle: resource, keys: Tin); Tin: type; stateful`, always(tableRemove)})
}

// tableAt returns the table of input 0, for a node whose other inputs and outputs have the given types.
func tableAt(c *graph.Context, types func(t *table) (in, out []tensor.DType)) (*table, error) {
	t, err := objectAt[*table](c, "a lookup table")
	if err != nil {
		return nil, err
	}
	in, out := types(t)
	return t, checkSignature(c.Node, t.inputs(c.Node, in...), out)
}

// entryTypes are the types of a node that brings keys and values.
func entryTypes(t *table) (in, out []tensor.DType) { return []tensor.DType{t.keys, t.types}, nil }

// valueShape returns the shape of the values of keys.
func (t *table) valueShape(keys tensor.Shape) (tensor.Shape, error) {
	return newShape(append(keys.Dims(), t.value.Dims()...))
}

// checkEntries compares the shapes of keys and values.
func (t *table) checkEntries(c *graph.Context) error {
	want, err := t.valueShape(c.Input(1).Shape())
	if err != nil {
		return err
	}
	if got := c.Input(2).Shape(); !got.Equal(want) {
		return invalid("Expected shape %s for value, got %s", want, got)
	}
	return nil
}

func tableFind(c *graph.Context) error {
	t, err := tableAt(c, func(t *table) (in, out []tensor.DType) {
		return []tensor.DType{t.keys, t.types}, []tensor.DType{t.types}
	})
	if err != nil {
		return err
	}
	shape, err := t.valueShape(c.Input(1).Shape())
	if err != nil {
		return err
	}
	missing := c.Input(2)
	if s := missing.Shape(); !s.Equal(t.value) && !s.Equal(shape) {
		return invalid("Expected shape %s or %s for default value, got %s", t.value, shape, s)
	}
	m, err := newMover(c, 0, t.types, shape)
	if err != nil {
		return err
	}
	return m.done(t.find(m, c.Input(1), missing))
}

func (t *table) find(m *mover, keys, missing *tensor.Tensor) error {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if err := t.usable(); err != nil {
		return err
	}
	if t.fixed() && !t.filled {
		return status.New(status.FailedPrecondition, "Table not initialized.")
	}
	return t.entries.find(m, keys, missing, t.fixed()) // a fixed one takes the first default, as in TensorFlow
}

func tableInsert(c *graph.Context) error {
	t, err := tableAt(c, entryTypes)
	if err != nil {
		return err
	}
	if err := t.checkEntries(c); err != nil {
		return err
	}
	if t.fixed() {
		return status.New(status.Unimplemented, "Insert not supported by InitializableLookupTable implementations")
	}
	return t.insert(c.Step.Allocator, c.Input(1), c.Input(2))
}

func tableImport(c *graph.Context) error {
	t, err := tableAt(c, entryTypes)
	if err != nil {
		return err
	}
	if err := t.checkEntries(c); err != nil {
		return err
	}
	return t.fill(c.Step.Allocator, c.Input(1), c.Input(2))
}

func initializeTable(c *graph.Context) error {
	t, err := objectAt[*table](c, "a lookup table")
	if err != nil {
		return err
	}
	if !t.fixed() {
		return invalid("Table %s %s is not initializable", t.shown, t.key.name)
	}
	if err := checkSignature(c.Node, t.inputs(c.Node, t.keys, t.types), nil); err != nil {
		return err
	}
	keys, values := c.Input(1).Shape(), c.Input(2).Shape()
	switch {
	case keys.Rank() != 1:
		return invalid("Keys must be a vector, but received shape%s", keys)
	case values.Rank() != 1:
		return invalid("Values must be a vector, but received shape%s", values)
	case keys.Elements() != values.Elements():
		return invalid("Keys and values must have the same size %d vs %d", keys.Elements(), values.Elements())
	}
	return t.fill(c.Step.Allocator, c.Input(1), c.Input(2))
}

func tableRemove(c *graph.Context) error {
	t, err := tableAt(c, func(t *table) (in, out []tensor.DType) { return []tensor.DType{t.keys}, nil })
	if err != nil {
		return err
	}
	if t.fixed() {
		return status.New(status.Unimplemented, "Remove not supported by InitializableLookupTable implementations")
	}
	return t.remove(c.Input(1))
}

func tableSize(c *graph.Context) error {
	t, err := objectAt[*table](c, "a lookup table")
	if err != nil {
		return err
	}
	t.mu.RLock()
	size := t.entries.size()
	t.mu.RUnlock()
	out, err := scalarTensor(c, int64(size))
	if err == nil {
		c.Set(0, out)
	}
	return err
}

func tableExport(c *graph.Context) error {
	t, err := objectAt[*table](c, "a lookup table")
	if err != nil {
		return err
	}
	if want := []tensor.DType{t.keys, t.types}; !slices.Equal(c.Node.OutTypes, want) {
		return checkSignature(c.Node, t.inputs(c.Node), want)
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	if err := t.usable(); err != nil {
		return err
	}
	if t.fixed() && !t.filled {
		return status.New(status.Aborted, "HashTable is not initialized.")
	}
	return t.entries.export(c, t.keys, t.types, t.value)
}
