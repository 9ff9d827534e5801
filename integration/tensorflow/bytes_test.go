//go:build interop

package tensorflow_test

import (
	"bytes"
	"encoding/hex"
	"flag"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/proto/tensorflowgrpc"
	"github.com/tryst-rdma/tryst/internal/tensorflow/master"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/tensortest"
)

// TestSameBytes: for the same tensor, the RecvTensor responses of TensorFlow and Tryst have the
// same bytes, except for the time of the send.
func TestSameBytes(t *testing.T) {
	bed := start(t, options{})
	for _, v := range append(smallValues(t), largeValues()[0]) {
		t.Run(v.name, func(t *testing.T) {
			bed := bed.in(t)
			x := v.make(t, bed.alloc)
			defer x.Release()
			theirs, ours := bed.tensorFlowResponse(x), bed.trystResponse(x)
			if !bytes.Equal(theirs, ours) {
				t.Errorf("%v: responses differ:\nTensorFlow %.200x\nTryst      %.200x", x, theirs, ours)
			}
		})
	}
	t.Run("dead", func(t *testing.T) {
		bed := bed.in(t)
		theirs := bed.tensorFlowDeadResponse()
		s := bed.newStep()
		if err := s.Send(bed.toTF("x"), rendezvous.Args{}, nil, true); err != nil {
			t.Fatal(err)
		}
		if ours := bed.capture(bed.server.Task(), s, bed.toTF("x")); !bytes.Equal(theirs, ours) {
			t.Errorf("dead value: responses differ:\nTensorFlow %x\nTryst      %x", theirs, ours)
		}
		s.cleanUp()
	})
}

var update = flag.Bool("update", false, "write TensorFlow's responses to the golden file")

// golden is the file with which the tests of transport/grpc compare our codec. Each line has a
// tensor (dtype and dimensions; its content is tensortest.Sequence) and the bytes of TensorFlow's
// response, with 0 as the time of the send.
const golden = "../../transport/grpc/testdata/tensorflow.txt"

// TestGolden: TensorFlow's responses are those of the golden file.
func TestGolden(t *testing.T) {
	bed := start(t, options{})
	var lines []string
	for _, d := range plainTypes(t) {
		lines = append(lines, d.String()+" 2 3")
	}
	lines = append(lines, "float", "bool", "float 0", "int64 4 0 7", "double 1 2 1 3 2", "uint8 300", "uint8 1024", "uint8 1025",
		"string", "string 0", "string 4", "string 2 1 3", "dead")
	text := "# RecvTensorResponses of TensorFlow " + version(t) + ", written by\n" +
		"#\tmake interop TESTARGS='-run TestGolden -update'\n" +
		"# Each line: the tensor (tensortest.Sequence of a type and dimensions), and the bytes with 0 as send_start_micros.\n"
	for _, l := range lines {
		var b []byte
		if l == "dead" {
			b = bed.tensorFlowDeadResponse()
		} else {
			fields := strings.Fields(l)
			dtype, _ := tensor.ParseDType(fields[0])
			var dims []int64
			for _, field := range fields[1:] {
				n, err := strconv.ParseInt(field, 10, 64)
				if err != nil {
					t.Fatal(err)
				}
				dims = append(dims, n)
			}
			b = bed.tensorFlowResponse(tensortest.Sequence(t, dtype, dims...))
		}
		text += l + ": " + hex.EncodeToString(b) + "\n"
	}
	if *update {
		if err := os.WriteFile(golden, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	file, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Split(string(file), "\n")
	for line := range strings.SplitSeq(text, "\n") {
		if !strings.HasPrefix(line, "#") && !slices.Contains(want, line) {
			t.Errorf("got the response\n%s\nwhich is not in %s", line, golden)
		}
	}
}

// version returns TensorFlow's release in requirements.txt.
func version(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("requirements.txt")
	if err != nil {
		t.Fatal(err)
	}
	_, v, _ := strings.Cut(string(b), "==")
	return strings.TrimSpace(v)
}

// tensorFlowResponse returns TensorFlow's response for x.
func (bed *testbed) tensorFlowResponse(x *tensor.Tensor) []byte {
	bed.t.Helper()
	g := bed.graph()
	g.send("x", g.Const("c", x), x.DType())
	s := bed.run(g)
	defer s.end()
	return bed.capture(tfTask, s, bed.toTryst("x"))
}

// tensorFlowDeadResponse returns TensorFlow's response for the output of a Switch that was not
// taken.
func (bed *testbed) tensorFlowDeadResponse() []byte {
	bed.t.Helper()
	g := bed.graph()
	sw := g.Add("switch", "Switch", master.Attrs{"T": master.Type(tensor.Float32)},
		g.Const("data", slice[float32](bed.t, 1)), g.Const("pred", slice(bed.t, true)))
	g.send("x", sw, tensor.Float32)
	s := bed.run(g)
	defer s.end()
	return bed.capture(tfTask, s, bed.toTryst("x"))
}

// trystResponse returns our server's response for x to a requester that is not Tryst.
func (bed *testbed) trystResponse(x *tensor.Tensor) []byte {
	bed.t.Helper()
	s := bed.newStep()
	defer bed.server.EndStep(s.id)
	bed.send(s, "x", x)
	return bed.capture(bed.server.Task(), s, bed.toTF("x"))
}

// capture requests a value and returns the bytes of the response, with 0 as the time of the send.
func (bed *testbed) capture(from cluster.Task, s *step, key rendezvous.Key) []byte {
	bed.t.Helper()
	return bed.captureID(from, s, key, master.NewStep()) // a request id: any number that is not 0
}

func (bed *testbed) captureID(from cluster.Task, s *step, key rendezvous.Key, id int64) []byte {
	bed.t.Helper()
	conn, err := bed.conns.Conn(from)
	if err != nil {
		bed.t.Fatal(err)
	}
	var b []byte
	err = conn.Invoke(bed.soon(), tensorflowgrpc.WorkerService_RecvTensor_FullMethodName,
		&tfpb.RecvTensorRequest{StepId: s.id, RendezvousKey: key.String(), RequestId: id}, &b, grpc.ForceCodecV2(rawCodec{}), grpc.MaxCallRecvMsgSize(math.MaxInt32))
	if err != nil {
		bed.t.Fatal(err)
	}
	return bed.withoutTime(b)
}

// withoutTime replaces the value of send_start_micros (field 3) by 0.
func (bed *testbed) withoutTime(b []byte) (out []byte) {
	bed.t.Helper()
	const sendStartMicros = 3
	for len(b) > 0 {
		num, _, n := protowire.ConsumeField(b)
		if n < 0 {
			bed.t.Fatalf("the response does not parse: %v", protowire.ParseError(n))
		}
		if num == sendStartMicros {
			out = protowire.AppendVarint(protowire.AppendTag(out, num, protowire.VarintType), 0)
		} else {
			out = append(out, b[:n]...)
		}
		b = b[n:]
	}
	return out
}

// rawCodec returns the bytes of a response, and encodes requests as protobuf.
type rawCodec struct{}

func (rawCodec) Name() string { return "proto" }

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	m, ok := v.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("%T: must be a proto.Message", v)
	}
	b, err := proto.Marshal(m)
	return mem.BufferSlice{mem.SliceBuffer(b)}, err
}

func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	b, ok := v.(*[]byte)
	if !ok {
		return fmt.Errorf("%T: must be *[]byte", v)
	}
	*b = data.Materialize()
	return nil
}
