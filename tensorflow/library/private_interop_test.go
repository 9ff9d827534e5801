//go:build interop

package library

import (
	"testing"

	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

// count runs a program, and returns the int32 that it sends as out; -1 when it sends none.
func (p *program) count() int32 {
	p.t.Helper()
	sent, err := p.run(p.t.Context(), nil)
	if err != nil {
		p.t.Fatal(err)
	}
	if sent["out"] == nil {
		return -1
	}
	defer sent["out"].Release()
	v, err := tensor.Values[int32](sent["out"])
	if err != nil || len(v) != 1 {
		p.t.Fatalf("%v, %v", v, err)
	}
	return v[0]
}

// functionsOf are those that the context of a state has.
func functionsOf(t testing.TB, st graph.State) int {
	s := as[*state](t, st)
	x, _ := s.hold()
	defer x.release()
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.uses)
}

// TestPrivateObjectsEndWithTheirSession: the graphs of a session have one queue, other sessions have
// others, also one that begins later, and nothing stays in the context.
func TestPrivateObjectsEndWithTheirSession(t *testing.T) {
	for _, v2 := range []bool{false, true} {
		s, st := session(t)
		var op string
		put := func() *builder {
			b := newBuilder(t, s)
			op = queue(b, v2)
			return b.floats("one", 1).add("put", "QueueEnqueue"+op, "q one", "Tcomponents", []tensor.DType{tensor.Float32})
		}
		size := func() *builder {
			b := newBuilder(t, s)
			op = queue(b, v2)
			return b.add("size", "QueueSize"+op, "q").send("out", "size")
		}
		for range 3 {
			here, there := st.NewSession(), st.NewSession()
			enqueue := put().must(here)
			enqueue.count()
			enqueue.close() // the session keeps the queue
			mine, other := size().must(here), size().must(there)
			if a, b := mine.count(), other.count(); a != 1 || b != 0 {
				t.Errorf("the queue has %d elements for the session that has put one into it, and %d for another; want 1 and 0", a, b)
			}
			mine.close()
			here.Close()
			if n := other.count(); n != 0 {
				t.Errorf("after the end of one session the queue of another has %d elements", n)
			}
			other.close()
			there.Close()
			if n := functionsOf(t, st); n != 0 {
				t.Errorf("after the end of its sessions the context has %d functions", n)
			}
		}
	}
}

// TestNamedBarrierKeepsWhatHasMadeIt: a later session finds it, and the process lives.
func TestNamedBarrierKeepsWhatHasMadeIt(t *testing.T) {
	s, st := session(t)
	for i := range int32(5) {
		one := st.NewSession()
		barrier := func() *builder {
			return newBuilder(t, s).add("b", "Barrier", "", "component_types", []tensor.DType{tensor.Float32}, "shapes", [][]int64{{}}, "shared_name", "b")
		}
		dim := &tfpb.TensorShapeProto{Dim: []*tfpb.TensorShapeProto_Dim{{Size: 1}}}
		put := barrier().
			add("key", "Const", "", "dtype", tensor.String, "value", &tfpb.TensorProto{Dtype: tfpb.DataType_DT_STRING, TensorShape: dim, StringVal: [][]byte{{byte(i)}}}).
			add("value", "Const", "", "dtype", tensor.Float32, "value", &tfpb.TensorProto{Dtype: tfpb.DataType_DT_FLOAT, TensorShape: dim, FloatVal: []float32{1}}).
			add("put", "BarrierInsertMany", "b key value", "T", tensor.Float32, "component_index", 0).must(one)
		put.count()
		size := barrier().add("size", "BarrierReadySize", "b").send("out", "size").must(one)
		if n := size.count(); n != i+1 {
			t.Errorf("session %d finds %d elements, want %d", i, n, i+1)
		}
		put.close()
		size.close()
		one.Close()
	}
}
