package ops

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

func (b *bench) table(op string, keys, values tensor.DType, more attrs) graph.Value {
	b.t.Helper()
	a := attrs{"key_dtype": keys, "value_dtype": values, "value_shape": tensor.Vector(2)}
	maps.Copy(a, more)
	return b.runNamed("t", op, a)[0]
}

func (b *bench) found(t, keys, missing graph.Value) string {
	b.t.Helper()
	v := b.run("LookupTableFindV2", attrs{"Tout": missing.Tensor.DType()}, t, keys, missing)[0]
	defer v.Release()
	return show(v)
}

func (b *bench) tableSize(t graph.Value) string {
	b.t.Helper()
	v := b.run("LookupTableSizeV2", nil, t)[0]
	defer v.Release()
	return show(v)
}

func TestATableGivesTheValuesOfKeys(t *testing.T) {
	b := newBench(t)
	words := text([]int64{3}, "a", "b", "a")
	m := b.table("MutableHashTableV2", tensor.String, tensor.Int64, nil)
	b.run("LookupTableInsertV2", nil, m, words, vec[int64](1, 2, 3))
	b.wantText(b.found(m, text([]int64{2, 2}, "b", "x", "a", "a"), scalar[int64](9)), "int64[2,2]: 2 9 3 3")
	b.wantText(b.found(m, text([]int64{2}, "x", "y"), vec[int64](7, 8)), "int64[2]: 7 8")
	b.run("LookupTableRemoveV2", nil, m, text([]int64{2}, "a", "none"))
	b.wantText(b.found(m, words, scalar[int64](0)), "int64[3]: 0 2 0")
	outs := b.run("LookupTableExportV2", attrs{"Tkeys": tensor.String, "Tvalues": tensor.Int64}, m)
	b.want(outs[0], "string[1]: b")
	b.want(outs[1], "int64[1]: 2")

	rows := b.table("MutableHashTableOfTensorsV2", tensor.Int64, tensor.String, nil)
	b.run("LookupTableImportV2", nil, rows, vec[int64](5, 6), text([]int64{2, 2}, "p", "q", "r", "s"))
	b.wantText(b.found(rows, vec[int64](6, 7), text([]int64{2}, "-", "+")), "string[2,2]: r s - +")
}

// TestAFixedTableGetsItsEntriesOnce, all of them or none.
func TestAFixedTableGetsItsEntriesOnce(t *testing.T) {
	b := newBench(t)
	f := b.table("HashTableV2", tensor.Int64, tensor.Float32, nil)
	keys, values := vec[int64](1, 2), vec[float32](0.5, 2)
	find := func() error { return b.fails("LookupTableFindV2", nil, f, keys, scalar[float32](0)) }
	wantError := func(err error, code status.Code, text string) {
		t.Helper()
		if status.CodeOf(err) != code || status.From(err).Message() != text {
			t.Errorf("got %v, want %s", err, text)
		}
	}
	wantError(find(), status.FailedPrecondition, "Table not initialized.")
	wantError(b.fails("InitializeTableV2", nil, f, vec[int64](1, 2, 1), vec[float32](0.5, 2, 1.5)), status.FailedPrecondition,
		"HashTable has different value for same key. Key 1 has 0.5 and trying to add value 1.5")
	wantError(find(), status.FailedPrecondition, "Table not initialized.")
	b.run("InitializeTableV2", nil, f, keys, values)
	b.run("LookupTableImportV2", nil, f, keys, values)
	wantError(b.fails("LookupTableImportV2", nil, f, vec[int64](1), vec[float32](1)), status.FailedPrecondition, "Table was already initialized with different data.")
	wantError(b.fails("LookupTableInsertV2", nil, f, keys, values), status.Unimplemented, "Insert not supported by InitializableLookupTable implementations")
	b.wantText(b.found(f, vec[int64](2, 3), scalar[float32](-1)), "float[2]: 2 -1")
}

// TestATableIsFoundByItsName: by shared_name, by the name of its node if it says so, or as that of a node of one session.
func TestATableIsFoundByItsName(t *testing.T) {
	b := newBench(t)
	here, there := b.state.NewSession(), b.state.NewSession()
	find := func(s graph.State, a attrs) graph.Opaque {
		t.Helper()
		a["key_dtype"], a["value_dtype"] = tensor.Int64, tensor.Int64
		n := b.node("node", "MutableHashTableV2", a)
		k, err := s.NewKernel(n)
		if err != nil {
			t.Fatal(err)
		}
		outs, err := b.compute(k, n)
		if err != nil {
			t.Fatal(err)
		}
		return outs[0].Opaque
	}
	if find(here, attrs{"shared_name": "x"}) != find(there, attrs{"shared_name": "x"}) {
		t.Error("a shared_name is not shared")
	}
	if find(here, attrs{"use_node_name_sharing": true}) != find(there, attrs{"use_node_name_sharing": true}) {
		t.Error("the name of a node is not shared")
	}
	if find(here, attrs{}) == find(there, attrs{}) || find(here, attrs{}) != find(here, attrs{}) {
		t.Error("a table without a name belongs to its node in one session")
	}
}

// TestWhatATableHoldsIsCounted: entries without bytes, and long strings. An insert beyond the memory changes nothing, and what is
// removed is given back.
func TestWhatATableHoldsIsCounted(t *testing.T) {
	const limit = 4 << 20
	for name, value := range map[string]func(i int) graph.Value{
		"numbers":      func(i int) graph.Value { return in([]int64{1, 2}, int64(i), 0) },
		"long strings": func(int) graph.Value { return text([]int64{1, 2}, strings.Repeat("v", 5000), "") },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			pool := b.pooled(limit)
			m := b.table("MutableHashTableOfTensorsV2", tensor.Int64, value(0).Tensor.DType(), nil)
			insert := func(i int) error {
				inputs := []graph.Value{m, vec(int64(i)), value(i)}
				_, err := b.try(b.node("insert", "LookupTableInsertV2", nil, inputs...), inputs...)
				return err
			}
			n := 0
			for n < limit/100 && insert(n) == nil {
				n++
			}
			if err := insert(n); status.CodeOf(err) != status.ResourceExhausted {
				t.Errorf("insert %d: %v", n, err)
			}
			b.wantText(b.tableSize(m), fmt.Sprint("int64[]: ", n))
			for i := range n - 1 {
				b.run("LookupTableRemoveV2", nil, m, vec(int64(i)))
			}
			if held := pool.Stats().InUse; held > 2*overheadBlock {
				t.Errorf("one entry takes %d bytes", held)
			}
			b.state.Reset(nil)
			if held := pool.Stats().InUse; held != 0 {
				t.Errorf("%d bytes are counted when all is gone", held)
			}
			if err := insert(0); status.CodeOf(err) != status.Aborted {
				t.Errorf("after the reset: %v", err)
			}
		})
	}
}

// TestTablesDoWhatMapsDo: a table and a map get the same entries in random order, and the table counts what it has.
func TestTablesDoWhatMapsDo(t *testing.T) {
	c := tableConfig{kind: "MutableHashTable", keys: tensor.String, types: tensor.String}
	e, ok := c.newEntries().(*entriesOf[string])
	if !ok {
		t.Fatal("another type")
	}
	r := rand.New(rand.NewPCG(1, 2))
	model := map[string]string{}
	random := func(n int) *tensor.Tensor {
		list := make([]string, n)
		for i := range list {
			list[i] = strings.Repeat("k", r.IntN(60))
		}
		return text([]int64{int64(n)}, list...).Tensor
	}
	for range 5000 {
		n := r.IntN(6)
		keys, values := random(n), random(n)
		if r.IntN(3) == 0 {
			if err := e.remove(keys); err != nil {
				t.Fatal(err)
			}
			for _, k := range keys.Elements() {
				delete(model, k)
			}
		} else {
			before := e.bytes()
			most, err := e.reserve(keys, values)
			if err == nil {
				err = e.put(keys, values, false)
			}
			if err != nil || e.bytes()-before > most {
				t.Fatalf("%d bytes more, %d were reserved; %v", e.bytes()-before, most, err)
			}
			for i, k := range keys.Elements() {
				model[k] = values.Elements()[i]
			}
		}
		want := int64(0)
		for k, v := range model {
			want += e.entryBytes(k) + int64(len(v))
			if at, ok := e.place[k]; !ok || e.keys[at] != k || e.texts[at] != v {
				t.Fatalf("%q: the table has place %d, %v", k, at, ok)
			}
		}
		if len(e.place) != len(model) || len(e.keys) != len(model) || len(e.texts) != len(model) || e.bytes() != want {
			t.Fatalf("%d entries of %d bytes, want %d of %d", len(e.keys), e.bytes(), len(model), want)
		}
	}
}
