package tensorproto_test

import (
	"bytes"
	"runtime"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	pb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/tensorproto"
)

// What a peer's message can make a decoder hold beside the memory of plain elements.

func marshal(t *testing.T, p *pb.TensorProto) []byte {
	t.Helper()
	b, err := proto.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestElementsAreReserved: the allocator's limit counts elements as long as the tensor lives,
// their headers too.
func TestElementsAreReserved(t *testing.T) {
	strs := func(p *pb.TensorProto) *pb.TensorProto {
		p.Dtype = pb.DataType_DT_STRING
		return p
	}
	for _, c := range []struct {
		name string
		p    *pb.TensorProto
		want int64
	}{
		{"content", strs(&pb.TensorProto{TensorShape: shapeProto(3), TensorContent: []byte("\x00\x03\x01abcd")}), 3*16 + 4},
		{"list", strs(&pb.TensorProto{TensorShape: shapeProto(2), StringVal: [][]byte{[]byte("ab"), nil}}), 2*16 + 2},
		{"a string that repeats", strs(&pb.TensorProto{TensorShape: shapeProto(1000), StringVal: [][]byte{[]byte("ab")}}), 1000*16 + 2},
		{"variants that are empty", &pb.TensorProto{Dtype: pb.DataType_DT_VARIANT, TensorShape: shapeProto(50)}, 50 * 16},
		{"a float that repeats", &pb.TensorProto{Dtype: pb.DataType_DT_FLOAT, TensorShape: shapeProto(16), FloatVal: []float32{1}}, 64},
	} {
		pool := tensor.NewPool(tensor.PoolOptions{Limit: 1 << 20})
		x, err := tensorproto.Unmarshal(marshal(t, c.p), pool)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if got := pool.Stats().InUse; got != c.want {
			t.Errorf("%s: %d bytes are counted, want %d", c.name, got, c.want)
		}
		x.Release()
		if got := pool.Stats().InUse; got != 0 {
			t.Errorf("%s: %d bytes are counted after the release", c.name, got)
		}
	}
}

// TestElementsBeyondTheLimit: they are refused before they are made, whatever form they have.
func TestElementsBeyondTheLimit(t *testing.T) {
	const limit = 1 << 20
	for name, p := range map[string]*pb.TensorProto{
		"empty strings in a content": {Dtype: pb.DataType_DT_STRING, TensorShape: shapeProto(limit / 8), TensorContent: make([]byte, limit/8)},
		"a string that repeats":      {Dtype: pb.DataType_DT_STRING, TensorShape: shapeProto(limit / 8), StringVal: [][]byte{{'a'}}},
		"a long string":              {Dtype: pb.DataType_DT_STRING, StringVal: [][]byte{make([]byte, limit)}},
		"resources that are empty":   {Dtype: pb.DataType_DT_RESOURCE, TensorShape: shapeProto(limit / 8)},
		"a float that repeats":       {Dtype: pb.DataType_DT_FLOAT, TensorShape: shapeProto(limit / 2), FloatVal: []float32{1}},
	} {
		for _, expand := range []int64{0, -1} {
			pool := tensor.NewPool(tensor.PoolOptions{Limit: limit})
			d := tensorproto.Decoder{Allocator: pool, MaxExpand: expand}
			x, err := d.FromProto(p)
			if status.CodeOf(err) != status.ResourceExhausted || !strings.Contains(err.Error(), "limit is 1048576") {
				t.Errorf("%s: %v, %v", name, x, err)
			}
			if s := pool.Stats(); s.InUse != 0 {
				t.Errorf("%s: %d bytes are counted after the refusal", name, s.InUse)
			}
		}
	}
}

// swollen are messages of 1 MiB whose parsed form is many times as large.
func swollen() map[string][]byte {
	const size = 1 << 20
	of := func(field []byte) []byte { return bytes.Repeat(field, size/len(field)) }
	msg := func(num protowire.Number, b []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(nil, num, protowire.BytesType), b)
	}
	number := func(num protowire.Number) []byte {
		return protowire.AppendVarint(protowire.AppendTag(nil, num, protowire.VarintType), 1)
	}
	tensors := msg(15, of(msg(3, nil)))
	for range 20 {
		tensors = msg(15, msg(3, tensors))
	}
	return map[string][]byte{
		"dims":             msg(2, of(msg(2, nil))),
		"packed ints":      msg(7, of([]byte{1})),
		"packed int64s":    msg(10, of([]byte{1})),
		"packed bools":     msg(11, of([]byte{1})),
		"packed halves":    msg(13, of([]byte{1})),
		"ints":             of(number(7)),
		"int64s":           of(number(10)),
		"empty strings":    of(msg(8, nil)),
		"short strings":    of(msg(8, []byte("a"))),
		"resources":        of(msg(14, nil)),
		"types of one":     msg(14, of(msg(6, nil))),
		"variants":         of(msg(15, nil)),
		"tensors of one":   msg(15, of(msg(3, nil))),
		"tensors, nested":  tensors,
		"unknown fields":   of(number(99)),
		"an unknown group": append(append([]byte{0x9b, 0x06}, of(number(1))...), 0x9c, 0x06),
	}
}

// TestParsedMessageIsReserved: what parsing takes is counted before, and is at least what it
// does take.
func TestParsedMessageIsReserved(t *testing.T) {
	for name, b := range swollen() {
		b = append([]byte{0x08, 0x07}, b...) // DT_STRING
		heap := func() int64 {
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			return int64(m.HeapAlloc)
		}
		before := heap()
		p := new(pb.TensorProto)
		if err := proto.Unmarshal(b, p); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		taken := heap() - before
		runtime.KeepAlive(p)
		runtime.KeepAlive(b)
		pool := tensor.NewPool(tensor.PoolOptions{Limit: taken - 64<<10})
		x, err := tensorproto.Unmarshal(b, pool)
		if status.CodeOf(err) != status.ResourceExhausted {
			t.Errorf("%s: a message of %d bytes takes %d when it is parsed, which a limit of less than that does not refuse: %v, %v", name, len(b), taken, x, err)
		}
		if s := pool.Stats(); s.InUse != 0 {
			t.Errorf("%s: %d bytes are counted after the refusal", name, s.InUse)
		}
	}
}
