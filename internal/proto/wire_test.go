package proto_test

import (
	"bytes"
	"encoding/hex"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/tryst-rdma/tryst/internal/proto/tryst"
	"github.com/tryst-rdma/tryst/proto/tensorflow"
)

// TestGoldenBytes pins encodings byte by byte.
func TestGoldenBytes(t *testing.T) {
	for _, test := range []struct {
		name string
		msg  proto.Message
		hex  string
	}{
		{
			"request as TensorFlow's worker sends it",
			&tensorflow.RecvTensorRequest{StepId: 1 << 56, RendezvousKey: "k", RequestId: -2},
			"08" + "808080808080808001" + "12016b" + "38" + "feffffffffffffffff01",
		},
		{
			"incarnation is fixed64",
			&tensorflow.DeviceAttributes{Name: "d", Incarnation: 0x0102030405060708},
			"0a0164" + "31" + "0807060504030201",
		},
		{
			"lists of numbers are packed, field 16 has a two-byte tag",
			&tensorflow.TensorProto{
				Dtype: tensorflow.DataType_DT_FLOAT, FloatVal: []float32{1, 2},
				Uint32Val: []uint32{1, 300}, StringVal: [][]byte{{'a'}, {}},
			},
			"0801" + "2a08" + "0000803f00000040" + "420161" + "4200" + "820103" + "01ac02",
		},
		{
			"reference type is two bytes",
			&tensorflow.TensorProto{Dtype: tensorflow.DataType_DT_FLOAT_REF},
			"0865",
		},
		{
			"dimensions are field 2 of a shape",
			&tensorflow.TensorShapeProto{Dim: []*tensorflow.TensorShapeProto_Dim{{Size: 3}, {Size: -1}}},
			"12020803" + "120b" + "08ffffffffffffffffff01",
		},
		{
			"several finished ids at once",
			&tensorflow.MarkRecvFinishedRequest{RequesterIncarnation: 1, Finished: []uint64{2, 3}},
			"8101" + "0100000000000000" + "8a0110" + "0200000000000000" + "0300000000000000",
		},
		{
			"receive options",
			&tryst.RecvOptions{Requester: "a", RequesterIncarnation: 1, Id: 2, Attempt: 1},
			"0a0161" + "11" + "0100000000000000" + "21" + "0200000000000000" + "2801",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			want, err := hex.DecodeString(test.hex)
			if err != nil {
				t.Fatal(err)
			}
			got, err := proto.MarshalOptions{Deterministic: true}.Marshal(test.msg)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, want) {
				t.Errorf("encoded:\n%x, want\n%x", got, want)
			}
			back := test.msg.ProtoReflect().New().Interface()
			if err := proto.Unmarshal(want, back); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.msg, back, protocmp.Transform()); diff != "" {
				t.Errorf("decoded (-want +got):\n%s", diff)
			}
		})
	}
}

// TestUnpackedListsParse checks that lists of numbers are read in the old form,
// too, one tag for each.
func TestUnpackedListsParse(t *testing.T) {
	var raw []byte
	for _, v := range []uint64{7, 8} {
		raw = protowire.AppendTag(raw, 7, protowire.VarintType)
		raw = protowire.AppendVarint(raw, v)
	}
	var got tensorflow.TensorProto
	if err := proto.Unmarshal(raw, &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]int32{7, 8}, got.IntVal); diff != "" {
		t.Errorf("int_val (-want +got):\n%s", diff)
	}
}

// TestTensorBeforeAndAfter checks that a RecvTensorResponse parses with its
// fields in any order: TensorFlow's writer puts tensor, field 1, last.
func TestTensorBeforeAndAfter(t *testing.T) {
	tensor, err := proto.Marshal(&tensorflow.TensorProto{Dtype: tensorflow.DataType_DT_INT8, TensorContent: []byte{5}})
	if err != nil {
		t.Fatal(err)
	}
	field1 := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), tensor)
	field3 := protowire.AppendVarint(protowire.AppendTag(nil, 3, protowire.VarintType), 99)
	for _, raw := range [][]byte{
		append(bytes.Clone(field1), field3...),
		append(bytes.Clone(field3), field1...),
	} {
		var got tensorflow.RecvTensorResponse
		if err := proto.Unmarshal(raw, &got); err != nil {
			t.Fatal(err)
		}
		if got.SendStartMicros != 99 || !bytes.Equal(got.Tensor.GetTensorContent(), []byte{5}) {
			t.Errorf("%x parses as %v", raw, &got)
		}
	}
}

// TestUnknownFieldsSurvive sends fields through that only a newer peer knows:
// at the top, in a nested message, in a map's value, and an enum's value.
func TestUnknownFieldsSurvive(t *testing.T) {
	const number = 1000
	unknown := protowire.AppendTag(nil, number, protowire.BytesType)
	unknown = protowire.AppendString(unknown, "from the future")

	node := &tensorflow.NodeDef{Name: "n", Attr: map[string]*tensorflow.AttrValue{
		"T": {Value: &tensorflow.AttrValue_Type{Type: 77}},
		"x": {},
	}}
	node.ProtoReflect().SetUnknown(unknown)
	node.Attr["x"].ProtoReflect().SetUnknown(unknown)
	request := &tensorflow.RegisterGraphRequest{GraphDef: &tensorflow.GraphDef{Node: []*tensorflow.NodeDef{node}}}
	request.ProtoReflect().SetUnknown(unknown)
	address := &tensorflow.GetRemoteAddressRequest{HostName: "/job:worker/replica:0/task:1"}
	address.ProtoReflect().SetUnknown(unknown)

	for _, msg := range []proto.Message{request, address} {
		raw, err := proto.MarshalOptions{Deterministic: true}.Marshal(msg)
		if err != nil {
			t.Fatal(err)
		}
		parsed := msg.ProtoReflect().New().Interface()
		if err := proto.Unmarshal(raw, parsed); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(msg, parsed, protocmp.Transform()); diff != "" {
			t.Errorf("%T (-sent +parsed):\n%s", msg, diff)
		}
		again, err := proto.MarshalOptions{Deterministic: true}.Marshal(parsed)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(raw, again) {
			t.Errorf("%T: %x was parsed and written again as %x", msg, raw, again)
		}
		if len(parsed.ProtoReflect().GetUnknown()) == 0 {
			t.Errorf("%T lost the unknown field", msg)
		}
	}
}

// TestRecvOptionsTravel puts Tryst's options into TensorFlow's request, as a
// Tryst requester does, and takes them out.
func TestRecvOptionsTravel(t *testing.T) {
	want := &tryst.RecvOptions{Requester: "/job:client/replica:0/task:7", Id: 9, Finished: []uint64{1, 2, 3}}
	options, err := anypb.New(want)
	if err != nil {
		t.Fatal(err)
	}
	if got := options.GetTypeUrl(); got != "type.googleapis.com/tryst.RecvOptions" {
		t.Errorf("type URL is %q", got)
	}
	raw, err := proto.Marshal(&tensorflow.RecvTensorRequest{RendezvousKey: "k", TransportOptions: options})
	if err != nil {
		t.Fatal(err)
	}
	var request tensorflow.RecvTensorRequest
	if err := proto.Unmarshal(raw, &request); err != nil {
		t.Fatal(err)
	}
	got := new(tryst.RecvOptions)
	if err := request.TransportOptions.UnmarshalTo(got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("(-sent +got):\n%s", diff)
	}
	if request.TransportOptions.MessageIs((*tryst.RecvExtra)(nil)) {
		t.Error("RecvOptions pass for RecvExtra")
	}
}
