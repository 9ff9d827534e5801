package wiresize

import (
	"bytes"
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	trystpb "github.com/tryst-rdma/tryst/internal/proto/tryst"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/status"
)

// nested returns b as field number of a message.
func nested(number protowire.Number, b []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), b)
}

func repeated(b []byte, times int) []byte { return bytes.Repeat(b, times) }

// graph is a legitimate graph of n nodes.
func graph(n int) *tfpb.GraphDef {
	g := &tfpb.GraphDef{Versions: &tfpb.VersionDef{Producer: 1}}
	for i := range n {
		g.Node = append(g.Node, &tfpb.NodeDef{
			Name: fmt.Sprintf("model/layer_%d/dense/MatMul", i), Op: "MatMul", Device: "/job:worker/replica:0/task:0/device:CPU:0",
			Input: []string{fmt.Sprintf("model/layer_%d/dense/Relu", i-1), fmt.Sprintf("model/layer_%d/kernel/read", i)},
			Attr: map[string]*tfpb.AttrValue{
				"T":           {Value: &tfpb.AttrValue_Type{Type: tfpb.DataType_DT_FLOAT}},
				"transpose_a": {Value: &tfpb.AttrValue_B{B: false}},
				"transpose_b": {Value: &tfpb.AttrValue_B{B: false}},
				"_class":      {Value: &tfpb.AttrValue_List{List: &tfpb.AttrValue_ListValue{S: [][]byte{[]byte("loc:@x")}}}},
			},
		})
	}
	return g
}

// messagesOfAll are messages that grow, and usual ones.
func messagesOfAll(tb testing.TB) map[string]struct {
	of   proto.Message
	wire []byte
} {
	marshal := func(m proto.Message) []byte {
		b, err := proto.Marshal(m)
		if err != nil {
			tb.Fatal(err)
		}
		return b
	}
	type sample = struct {
		of   proto.Message
		wire []byte
	}
	const n = 20_000
	attr := nested(5, append(nested(1, []byte("k")), nested(2, nil)...))
	attrs := []byte{}
	for i := range n {
		attrs = append(attrs, nested(5, append(nested(1, fmt.Appendf(nil, "%d", i)), nested(2, nil)...))...)
	}
	return map[string]sample{
		"empty nodes":           {new(tfpb.GraphDef), repeated(nested(1, nil), n)},
		"empty nodes nested":    {new(tfpb.RegisterGraphRequest), nested(2, repeated(nested(1, nil), n))},
		"nodes of one map":      {new(tfpb.GraphDef), repeated(nested(1, attr), n)},
		"one node of many maps": {new(tfpb.NodeDef), attrs},
		"empty inputs":          {new(tfpb.NodeDef), repeated(nested(3, nil), n)},
		"short inputs":          {new(tfpb.NodeDef), repeated(nested(3, []byte("a")), n)},
		"empty tensors":         {new(trystpb.DescribeResponse), repeated(nested(2, nil), n)},
		"empty publications":    {new(trystpb.ListResponse), repeated(nested(1, nil), n)},
		"packed numbers":        {new(tfpb.TensorProto), nested(10, repeated([]byte{1}, n))},
		"packed in parts":       {new(tfpb.TensorProto), repeated(nested(10, []byte{1}), n/10)},
		"packed and merged":     {new(tfpb.NamedTensorProto), repeated(nested(2, nested(10, []byte{1})), n/10)},
		"numbers":               {new(tfpb.TensorProto), repeated(protowire.AppendVarint(protowire.AppendTag(nil, 10, protowire.VarintType), 1), n)},
		"unknown fields":        {new(tfpb.NodeDef), repeated(protowire.AppendVarint(protowire.AppendTag(nil, 100, protowire.VarintType), 1), n)},
		"unknown groups":        {new(tfpb.NodeDef), repeated(protowire.AppendTag(protowire.AppendTag(nil, 100, protowire.StartGroupType), 100, protowire.EndGroupType), n)},
		"wrong wire types":      {new(tfpb.NodeDef), repeated(protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 1), n)},
		"a graph":               {new(tfpb.GraphDef), marshal(graph(1000))},
		"content":               {new(tfpb.RunGraphRequest), marshal(&tfpb.RunGraphRequest{Send: []*tfpb.NamedTensorProto{{Name: "x", Tensor: &tfpb.TensorProto{TensorContent: make([]byte, 1<<20)}}}})},
		"strings":               {new(tfpb.TensorProto), repeated(nested(8, []byte("ab")), n)},
		"bools":                 {new(tfpb.TensorProto), nested(11, repeated([]byte{1}, n))},
		"floats":                {new(tfpb.TensorProto), nested(5, make([]byte, 4*n))},
		"any":                   {new(anypb.Any), marshal(&anypb.Any{TypeUrl: "x", Value: make([]byte, n)})},
		"empty":                 {new(tfpb.GetStatusRequest), nil},
	}
}

// TestTheEstimateCoversWhatIsAllocated compares it with what proto.Unmarshal allocates.
func TestTheEstimateCoversWhatIsAllocated(t *testing.T) {
	var s Scanner
	for name, m := range messagesOfAll(t) {
		size, err := s.Size(m.wire, m.of, 1<<40)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		into := m.of.ProtoReflect().New().Interface()
		runtime.GC()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err = proto.Unmarshal(m.wire, into)
		runtime.ReadMemStats(&after)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		allocated := int64(after.TotalAlloc - before.TotalAlloc)
		t.Logf("%s: %d bytes on the wire, %d allocated, %d kept, estimated %d", name, len(m.wire), allocated, deep(reflect.ValueOf(into)), size)
		if slack := int64(16 << 10); allocated > 2*size+slack || size > 6*allocated+slack {
			t.Errorf("%s: %d bytes are allocated, estimated %d", name, allocated, size)
		}
	}
}

func TestTheBoundEndsTheScan(t *testing.T) {
	var s Scanner
	bomb := nested(2, repeated(nested(1, nil), 1<<20))
	size, err := s.Size(bomb, new(tfpb.RegisterGraphRequest), 1<<20)
	if status.CodeOf(err) != status.ResourceExhausted || size > 2<<20 || !strings.Contains(err.Error(), "RegisterGraphRequest") {
		t.Errorf("%d, %v", size, err)
	}
	if n := testing.AllocsPerRun(10, func() { _, _ = s.Size(bomb, new(tfpb.RegisterGraphRequest), 1<<40) }); n > 2 {
		t.Errorf("a scan allocates %v times", n)
	}
}

func TestMessagesNestedDeep(t *testing.T) {
	var s Scanner
	var b []byte
	for range maxDepth - 2 { // VariantTensorDataProto and TensorProto have one another
		b = nested(15, nested(3, b))
	}
	if _, err := s.Size(b, new(tfpb.TensorProto), 1<<40); status.CodeOf(err) != status.InvalidArgument || !strings.Contains(err.Error(), "deep") {
		t.Error(err)
	}
	if _, err := s.Size(nested(15, nested(3, nil)), new(tfpb.TensorProto), 1<<40); err != nil {
		t.Error(err)
	}
}

func TestWhatIsNoMessage(t *testing.T) {
	var s Scanner
	for _, b := range [][]byte{{0x0a}, {0x0a, 5}, {0x07}, {0x0b}, {0x0c}, {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, {0x1f, 0x8b, 8}} {
		if _, err := s.Size(b, new(tfpb.GraphDef), 1<<40); status.CodeOf(err) != status.InvalidArgument {
			t.Errorf("%x: %v", b, err)
		}
	}
}

// deep returns what a value takes beside its own size, in bytes.
func deep(v reflect.Value) int64 {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return 0
		}
		return int64(v.Elem().Type().Size()) + deep(v.Elem())
	case reflect.Interface:
		if v.IsNil() {
			return 0
		}
		return deep(v.Elem())
	case reflect.String:
		return int64(v.Len())
	case reflect.Slice:
		n := int64(v.Len()) * int64(v.Type().Elem().Size())
		for i := range v.Len() {
			n += deep(v.Index(i))
		}
		return n
	case reflect.Map:
		n := int64(0)
		for it := v.MapRange(); it.Next(); {
			n += int64(it.Key().Type().Size()+it.Value().Type().Size()) + deep(it.Key()) + deep(it.Value())
		}
		return n
	case reflect.Struct:
		n := int64(0)
		for i := range v.NumField() {
			if v.Type().Field(i).Name != "state" { // protobuf's, shared by all messages of a type
				n += deep(v.Field(i))
			}
		}
		return n
	}
	return 0
}

// FuzzSize: what the scan accepts and protobuf parses stays within the estimate. What protobuf parses
// the scan refuses only for its depth.
func FuzzSize(f *testing.F) {
	for _, m := range messagesOfAll(f) {
		for i := range kinds() {
			f.Add(m.wire[:min(len(m.wire), 200)], uint8(i))
		}
	}
	f.Fuzz(func(t *testing.T, b []byte, kind uint8) {
		var s Scanner
		of := kinds()[int(kind)%len(kinds())]
		size, err := s.Size(b, of, 1<<40)
		wrong := proto.Unmarshal(b, of)
		if err != nil && wrong == nil && !strings.Contains(err.Error(), "deep") {
			t.Fatalf("%x is parsed: %v", b, err)
		}
		if kept := deep(reflect.ValueOf(of)); err == nil && wrong == nil && kept > size {
			t.Fatalf("%x takes %d bytes, estimated %d", b, kept, size)
		}
	})
}

// kinds are the messages that strangers send.
func kinds() []proto.Message {
	return []proto.Message{
		new(tfpb.RegisterGraphRequest), new(tfpb.RunGraphRequest), new(tfpb.CreateWorkerSessionRequest), new(tfpb.CompleteGroupRequest),
		new(tfpb.GraphDef), new(tfpb.NodeDef), new(tfpb.TensorProto), new(tfpb.RecvTensorRequest), new(trystpb.CancelRequest),
		new(trystpb.DescribeResponse), new(trystpb.ListResponse), new(trystpb.OpenResponse), new(tfpb.LoggingResponse),
	}
}

func BenchmarkSize(b *testing.B) {
	var s Scanner
	small, _ := proto.Marshal(&tfpb.RecvTensorRequest{StepId: 7, RendezvousKey: strings.Repeat("k", 120), TransportOptions: &anypb.Any{TypeUrl: "type.googleapis.com/tryst.RecvOptions", Value: make([]byte, 60)}})
	large, _ := proto.Marshal(graph(1000))
	for name, m := range map[string]struct {
		of   proto.Message
		wire []byte
	}{"RecvTensorRequest": {new(tfpb.RecvTensorRequest), small}, "GraphDef": {new(tfpb.GraphDef), large}} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(m.wire)))
			for b.Loop() {
				if _, err := s.Size(m.wire, m.of, 1<<40); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
