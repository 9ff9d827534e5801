package library

import (
	"bytes"
	"testing"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

func heap(uint64) tensor.Allocator { return tensor.Heap{} }

// example is a message with every field and every kind of value.
func example(t testing.TB) *message {
	t.Helper()
	floats, err := tensor.FromSlice(tensor.Vector(3), []float32{1, 2, 3})
	if err != nil {
		t.Fatal(err)
	}
	strings, err := tensor.FromStrings(tensor.Vector(2), []string{"", "\x00long"})
	if err != nil {
		t.Fatal(err)
	}
	none, err := tensor.FromSlice(tensor.Vector(0), []int64{})
	if err != nil {
		t.Fatal(err)
	}
	return &message{id: 1 << 40, op: opRun, context: 3, name: "f", data: []byte{0, 255}, outputs: 7, code: 5, text: "no",
		values: []graph.Value{{Tensor: floats}, {Opaque: remote(9)}, {Tensor: strings}, {Tensor: none}}}
}

// TestMessageRoundTrip: a message arrives as it was sent, and those behind it too.
func TestMessageRoundTrip(t *testing.T) {
	var b bytes.Buffer
	want := example(t)
	for range 2 {
		if err := want.write(&b); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		m, err := readMessage(&b, heap)
		if err != nil {
			t.Fatal(err)
		}
		if m.id != want.id || m.op != want.op || m.context != want.context || m.name != want.name || !bytes.Equal(m.data, want.data) ||
			m.outputs != want.outputs || m.code != want.code || m.text != want.text || len(m.values) != len(want.values) {
			t.Fatalf("%+v, want %+v", m, want)
		}
		for i, v := range m.values {
			if w := want.values[i]; v.Opaque != w.Opaque || (v.Tensor != nil && !tensor.Equal(v.Tensor, w.Tensor)) {
				t.Errorf("value %d is %v, want %v", i, v, w)
			}
		}
	}
	if b.Len() != 0 {
		t.Errorf("%d bytes are left", b.Len())
	}
}

// TestMessageBeyondTheLimit: a tensor that the allocator refuses makes an error of its message, and
// the next message is read.
func TestMessageBeyondTheLimit(t *testing.T) {
	var b bytes.Buffer
	for range 2 {
		if err := example(t).write(&b); err != nil {
			t.Fatal(err)
		}
	}
	m, err := readMessage(&b, func(uint64) tensor.Allocator { return tensor.NewPool(tensor.PoolOptions{Limit: 1}) })
	if err != nil || status.Code(m.code) != status.ResourceExhausted {
		t.Errorf("%+v, %v", m, err)
	}
	if m, err := readMessage(&b, heap); err != nil || m.code != 5 {
		t.Errorf("the next message: %+v, %v", m, err)
	}
}

// FuzzMessage: bytes of a process that has gone mad are an error.
func FuzzMessage(f *testing.F) {
	var b bytes.Buffer
	if err := example(f).write(&b); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Add(b.Bytes()[:20])
	f.Fuzz(func(_ *testing.T, b []byte) {
		if len(b) > 3 && (b[2] != 0 || b[3] != 0) {
			return // a header of more than 64 KiB, which is allocated
		}
		m, err := readMessage(bytes.NewReader(b), func(uint64) tensor.Allocator { return tensor.NewPool(tensor.PoolOptions{Limit: 1 << 16}) })
		if err == nil {
			release(m.values)
		}
	})
}
