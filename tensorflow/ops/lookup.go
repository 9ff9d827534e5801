package ops

import (
	"slices"
	"strings"
	"sync"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

// tableKind is the kind of lookup tables in a container, as TensorFlow's error texts have it.
const tableKind = "N10tensorflow6lookup15LookupInterfaceE"

// table is a lookup table. One of the kind HashTable gets its entries once.
type table struct {
	object
	tableConfig
	overhead overhead // of the entries

	mu      sync.RWMutex // guards the fields below
	entries entries
	filled  bool // of a HashTable
	dropped bool
}

// tableConfig is what the node of a table says.
type tableConfig struct {
	kind        string // without "V2"
	keys, types tensor.DType
	value       tensor.Shape // of one value
}

// fixed reports whether the table gets its entries once.
func (c tableConfig) fixed() bool { return c.kind == "HashTable" }

// newTable makes the kernel of a node that makes a table.
func newTable(n *graph.Node, s *State) (graph.Kernel, error) {
	c := tableConfig{kind: strings.TrimSuffix(n.Op, "V2"), keys: n.Type("key_dtype"), types: n.Type("value_dtype")}
	switch c.keys {
	case tensor.Int32, tensor.Int64, tensor.String:
	default:
		return nil, noType("key_dtype", c.keys)
	}
	if !movable(c.types) {
		return nil, noType("value_dtype", c.types)
	}
	if p := n.Attr("value_shape").GetShape(); p != nil {
		declared := partialOf(p)
		switch {
		case !declared.known():
			return nil, invalid("Shape %s is not fully defined", declared)
		case len(declared.dims) != 1:
			return nil, invalid("Default value must be a vector, got shape %s", declared)
		}
		var err error
		if c.value, err = newShape(declared.dims); err != nil {
			return nil, err
		}
	}
	k := newObject(n, s, tableKind)
	k.make = func() (holder, error) { return &table{tableConfig: c, entries: c.newEntries()}, nil }
	k.check = func(h holder) error {
		t, ok := h.(*table)
		if !ok {
			return status.Errorf(status.Internal, "the %T %q is no table", h, k.name)
		}
		if t.keys != c.keys || t.types != c.types {
			return invalid("Conflicting key/value dtypes %s->%s with %s-%s for table %s", c.keys, c.types, t.keys, t.types, k.name)
		}
		return nil
	}
	return k, nil
}

func (c tableConfig) newEntries() entries {
	column := column{size: c.types.Size(), width: int(c.value.Elements())}
	if c.types == tensor.String {
		column.size = 0
	}
	switch c.keys {
	case tensor.Int32:
		return &entriesOf[int32]{column: column, read: tensor.Values[int32], own: func(k int32) int32 { return k }}
	case tensor.Int64:
		return &entriesOf[int64]{column: column, read: tensor.Values[int64], own: func(k int64) int64 { return k }}
	}
	read := func(t *tensor.Tensor) ([]string, error) { return t.Elements(), nil }
	return &entriesOf[string]{column: column, read: read, own: strings.Clone, length: func(k string) int { return len(k) }}
}

// drop implements resource.
func (t *table) drop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.dropped = true
	t.overhead.give(t.entries.bytes())
	t.entries = t.newEntries()
	t.held.Release()
}

// usable returns an error for a table that was dropped. The lock is held.
func (t *table) usable() error {
	if t.dropped {
		return errObjectGone("Table", t.key.name)
	}
	return nil
}

// fill makes the entries of a table, which becomes what it is for good if it is a HashTable.
func (t *table) fill(a tensor.Allocator, keys, values *tensor.Tensor) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.usable(); err != nil {
		return err
	}
	if t.fixed() && keys.Shape().Elements() == 0 {
		return invalid("keys and values cannot be empty tensors.")
	}
	if t.fixed() && t.filled {
		if keys.Shape().Elements() == int64(t.entries.size()) { // as in TensorFlow, which compares no more
			return nil
		}
		return status.New(status.FailedPrecondition, "Table was already initialized with different data.")
	}
	fresh := t.newEntries()
	n, err := fresh.reserve(keys, values)
	if err != nil {
		return err
	}
	if err := t.overhead.add(a, n); err != nil {
		return err
	}
	if err := fresh.put(keys, values, t.fixed()); err != nil {
		t.overhead.give(n)
		return err
	}
	t.overhead.give(n - fresh.bytes() + t.entries.bytes())
	t.entries, t.filled = fresh, true
	return nil
}

// insert adds entries, and changes those that exist.
func (t *table) insert(a tensor.Allocator, keys, values *tensor.Tensor) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.usable(); err != nil {
		return err
	}
	n, err := t.entries.reserve(keys, values)
	if err != nil {
		return err
	}
	if err := t.overhead.add(a, n); err != nil {
		return err
	}
	before := t.entries.bytes()
	err = t.entries.put(keys, values, false)
	t.overhead.give(n - (t.entries.bytes() - before))
	return err
}

// remove removes entries.
func (t *table) remove(keys *tensor.Tensor) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.usable(); err != nil {
		return err
	}
	before := t.entries.bytes()
	err := t.entries.remove(keys)
	t.overhead.give(before - t.entries.bytes())
	return err
}

// entries are the keys and values of a table. They are not safe for concurrent use.
type entries interface {
	size() int
	// bytes is what they are counted with.
	bytes() int64
	// reserve returns at most how many bytes put adds.
	reserve(keys, values *tensor.Tensor) (int64, error)
	// put adds entries. Those that exist are changed; if once is set, another value for a key is an error.
	put(keys, values *tensor.Tensor, once bool) error
	remove(keys *tensor.Tensor) error
	// find puts the value of each key into m; where there is none the first value of missing, or the one for that key.
	find(m *mover, keys, missing *tensor.Tensor, first bool) error
	// export sets outputs 0 and 1.
	export(c *graph.Context, keys tensor.DType, values tensor.DType, value tensor.Shape) error
}

// column has the values of entries by their place.
type column struct {
	size  int // bytes of an element; 0 for strings
	width int // elements of a value
	plain []byte
	texts []string
}

// entriesOf are entries with keys of one type.
type entriesOf[K comparable] struct {
	column
	read   func(*tensor.Tensor) ([]K, error)
	own    func(K) K // without the memory of others
	length func(K) int

	place map[K]int
	keys  []K // by their place
	most  int // places since the map was made
	held  int64
}

func (e *entriesOf[K]) size() int    { return len(e.keys) }
func (e *entriesOf[K]) bytes() int64 { return e.held }

// entryBytes is what a key with its value is counted with. Slices grow by a quarter at least, and are copied then.
func (e *entriesOf[K]) entryBytes(k K) int64 {
	n := int64(tableEntryBytes)
	if e.length != nil {
		n += int64(e.length(k)) + 3*stringBytes
	}
	if e.column.size == 0 {
		return n + 3*stringBytes*int64(e.width)
	}
	return n + 3*int64(e.width)*int64(e.column.size)
}

// textBytes is what the strings of a value take.
func textBytes(texts []string) (n int64) {
	for _, s := range texts {
		n += int64(len(s))
	}
	return n
}

func (e *entriesOf[K]) reserve(keys, values *tensor.Tensor) (int64, error) {
	list, err := e.read(keys)
	if err != nil {
		return 0, err
	}
	n := int64(0)
	if e.column.size == 0 {
		n = textBytes(values.Elements())
	}
	for _, k := range list {
		if _, ok := e.place[k]; !ok {
			n += e.entryBytes(k)
		}
	}
	return n, nil
}

func (e *entriesOf[K]) put(keys, values *tensor.Tensor, once bool) error {
	list, err := e.read(keys)
	if err != nil {
		return err
	}
	if e.place == nil {
		e.place = make(map[K]int)
	}
	for i, k := range list {
		at, ok := e.place[k]
		if !ok {
			at = len(e.keys)
			k = e.own(k)
			e.place[k], e.keys = at, append(e.keys, k)
			e.most = max(e.most, len(e.keys))
			e.held += e.entryBytes(k) + e.add(values, i)
			continue
		}
		if once && !e.equal(at, values, i) {
			return status.Errorf(status.FailedPrecondition, "HashTable has different value for same key. Key %s has %s and trying to add value %s",
				shownElement(keys, i), e.shown(at, values.DType()), shownElement(values, i))
		}
		e.held += e.set(at, values, i)
	}
	return nil
}

func (e *entriesOf[K]) remove(keys *tensor.Tensor) error {
	list, err := e.read(keys)
	if err != nil {
		return err
	}
	for _, k := range list {
		at, ok := e.place[k]
		if !ok {
			continue
		}
		e.held -= e.entryBytes(k) + e.textBytes(at)
		last := len(e.keys) - 1
		moved := e.keys[last]
		e.keys[at], e.place[moved] = moved, at
		delete(e.place, k)
		clear(e.keys[last:])
		e.keys = e.keys[:last]
		e.move(at, last)
	}
	if 4*len(e.keys) < e.most {
		e.shrink()
	}
	return nil
}

// shrink makes map and slices anew, since they never get smaller.
func (e *entriesOf[K]) shrink() {
	e.most = len(e.keys)
	e.keys, e.plain, e.texts = slices.Clip(slices.Clone(e.keys)), slices.Clone(e.plain), slices.Clone(e.texts)
	e.place = make(map[K]int, len(e.keys))
	for i, k := range e.keys {
		e.place[k] = i
	}
}

func (e *entriesOf[K]) find(m *mover, keys, missing *tensor.Tensor, first bool) error {
	list, err := e.read(keys)
	if err != nil {
		return err
	}
	width := int64(e.width)
	first = first || missing.Shape().Elements() == width
	for i, k := range list {
		at, ok := e.place[k]
		switch {
		case ok:
			e.copyTo(m, i, at)
		case first:
			m.copy(int64(i)*width, missing, 0, width)
		default:
			m.copy(int64(i)*width, missing, int64(i)*width, width)
		}
	}
	return nil
}

func (e *entriesOf[K]) export(c *graph.Context, keys, values tensor.DType, value tensor.Shape) error {
	m, err := newMover(c, 0, keys, tensor.Vector(len(e.keys)))
	if err != nil {
		return err
	}
	switch list := any(e.keys).(type) {
	case []string:
		copy(m.elems, list)
	default:
		out, err := e.read(c.Outputs[0].Tensor)
		if err != nil {
			return err
		}
		copy(out, e.keys)
	}
	if err := m.done(nil); err != nil {
		return err
	}
	shape, err := newShape(append([]int64{int64(len(e.keys))}, value.Dims()...))
	if err != nil {
		return err
	}
	if m, err = newMover(c, 1, values, shape); err != nil {
		return err
	}
	copy(m.bytes, e.plain)
	copy(m.elems, e.texts)
	return m.done(nil)
}

// add appends value i of a tensor, and returns what its strings take.
func (c *column) add(values *tensor.Tensor, i int) int64 {
	if c.size == 0 {
		for _, s := range values.Elements()[i*c.width : (i+1)*c.width] {
			c.texts = append(c.texts, strings.Clone(s))
		}
		return textBytes(values.Elements()[i*c.width : (i+1)*c.width])
	}
	n := c.width * c.size
	c.plain = append(c.plain, values.Bytes()[i*n:(i+1)*n]...)
	return 0
}

// set changes the value at a place, and returns how much more its strings take.
func (c *column) set(at int, values *tensor.Tensor, i int) int64 {
	if c.size != 0 {
		n := c.width * c.size
		copy(c.plain[at*n:], values.Bytes()[i*n:(i+1)*n])
		return 0
	}
	before := c.textBytes(at)
	for j, s := range values.Elements()[i*c.width : (i+1)*c.width] {
		c.texts[at*c.width+j] = strings.Clone(s)
	}
	return c.textBytes(at) - before
}

func (c *column) textBytes(at int) int64 {
	if c.size != 0 {
		return 0
	}
	return textBytes(c.texts[at*c.width : (at+1)*c.width])
}

// move puts the last value to a place, and ends before it.
func (c *column) move(at, last int) {
	if c.size == 0 {
		copy(c.texts[at*c.width:(at+1)*c.width], c.texts[last*c.width:])
		clear(c.texts[last*c.width:])
		c.texts = c.texts[:last*c.width]
		return
	}
	n := c.width * c.size
	copy(c.plain[at*n:(at+1)*n], c.plain[last*n:])
	c.plain = c.plain[:last*n]
}

func (c *column) copyTo(m *mover, i, at int) {
	if c.size == 0 {
		copy(m.elems[i*c.width:], c.texts[at*c.width:(at+1)*c.width])
		return
	}
	n := c.width * c.size
	copy(m.bytes[i*n:], c.plain[at*n:(at+1)*n])
}

// equal compares the value at a place with value i of a tensor.
func (c *column) equal(at int, values *tensor.Tensor, i int) bool {
	if c.size == 0 {
		return slices.Equal(c.texts[at*c.width:(at+1)*c.width], values.Elements()[i*c.width:(i+1)*c.width])
	}
	n := c.width * c.size
	return string(c.plain[at*n:(at+1)*n]) == string(values.Bytes()[i*n:(i+1)*n])
}

// shown returns a value of one element as TensorFlow's texts have it.
func (c *column) shown(at int, dtype tensor.DType) string {
	if c.size == 0 {
		return shownText(c.texts[at])
	}
	t, err := tensor.Allocate(tensor.Heap{}, dtype, tensor.Shape{})
	if err != nil {
		return "?"
	}
	copy(t.Bytes(), c.plain[at*c.size:])
	return shownElement(t, 0)
}

// shownElement returns an element as TensorFlow's texts have it, strings as they are.
func shownElement(t *tensor.Tensor, i int) string {
	if t.DType() == tensor.String {
		return shownText(t.Elements()[i])
	}
	text, _ := elementText(t, maxShownText)
	return text(i)
}

func shownText(s string) string { return s[:min(len(s), maxShownText)] }
