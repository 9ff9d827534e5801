//go:build interop

package tensorflow_test

import (
	"bytes"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/tryst-rdma/tryst/cluster"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/proto/tensorflowgrpc"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/tensortest"
)

// TestSameBytes: for one tensor TensorFlow and Tryst answer RecvTensor with the
// same bytes, but for the time in them.
func TestSameBytes(t *testing.T) {
	w := start(t, options{})
	for _, v := range append(smallValues(), largeValues()[0]) {
		t.Run(v.name, func(t *testing.T) {
			w := w.in(t)
			x := v.make(t, w.alloc)
			defer x.Release()
			theirs, ours := w.bytesOfTensorFlow(x), w.bytesOfTryst(x)
			if !bytes.Equal(theirs, ours) {
				t.Errorf("%v:\nTensorFlow %.200x\nTryst      %.200x", x, theirs, ours)
			}
		})
	}
	t.Run("dead", func(t *testing.T) {
		w := w.in(t)
		theirs := w.deadBytesOfTensorFlow()
		s := w.newStep()
		if err := s.Send(w.toTF("x"), rendezvous.Args{}, nil, true); err != nil {
			t.Fatal(err)
		}
		if ours := w.capture(w.server.Task(), s, w.toTF("x")); !bytes.Equal(theirs, ours) {
			t.Errorf("TensorFlow %x\nTryst      %x", theirs, ours)
		}
		s.cleanUp()
	})
}

var update = flag.Bool("update", false, "write the golden file anew, with what TensorFlow sends")

// golden is what the tests of transport/grpc hold our codec to. Each line has a
// tensor (dtype and dimensions; its content is tensortest.Sequence) and the
// bytes of TensorFlow's answer, with 0 as the time of the send.
const golden = "../../transport/grpc/testdata/tensorflow.txt"

// TestGolden: TensorFlow still sends what the golden file says.
func TestGolden(t *testing.T) {
	w := start(t, options{})
	var lines []string
	for _, d := range tensortest.PlainDTypes() {
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
			b = w.deadBytesOfTensorFlow()
		} else {
			words := strings.Fields(l)
			dtype, _ := tensor.ParseDType(words[0])
			var dims []int64
			for _, word := range words[1:] {
				n, err := strconv.ParseInt(word, 10, 64)
				if err != nil {
					t.Fatal(err)
				}
				dims = append(dims, n)
			}
			b = w.bytesOfTensorFlow(tensortest.Sequence(t, dtype, dims...))
		}
		text += l + ": " + hex.EncodeToString(b) + "\n"
	}
	if *update {
		if err := os.WriteFile(golden, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != text {
		t.Errorf("TensorFlow sends\n%s\nand %s has\n%s", text, golden, want)
	}
}

// version returns the release that requirements.txt names.
func version(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("requirements.txt")
	if err != nil {
		t.Fatal(err)
	}
	_, v, _ := strings.Cut(string(b), "==")
	return strings.TrimSpace(v)
}

// bytesOfTensorFlow returns TensorFlow's answer for x.
func (w *world) bytesOfTensorFlow(x *tensor.Tensor) []byte {
	w.t.Helper()
	g := w.graph()
	g.send("x", g.constant("c", x), x.DType())
	s := w.run(g)
	defer s.end()
	return w.capture(tfTask, s, w.toTryst("x"))
}

// deadBytesOfTensorFlow returns its answer for the output of a Switch that was
// not taken.
func (w *world) deadBytesOfTensorFlow() []byte {
	w.t.Helper()
	g := w.graph()
	sw := g.add("switch", "Switch", attrs{"T": typeAttr(tensor.Float32)},
		g.constant("data", slice[float32](w.t, 1)), g.constant("pred", slice(w.t, true)))
	g.send("x", sw, tensor.Float32)
	s := w.run(g)
	defer s.end()
	return w.capture(tfTask, s, w.toTryst("x"))
}

// bytesOfTryst returns our server's answer for x to an asker that is not Tryst.
func (w *world) bytesOfTryst(x *tensor.Tensor) []byte {
	w.t.Helper()
	s := w.newStep()
	defer w.server.EndStep(s.id)
	w.send(s, "x", x)
	return w.capture(w.server.Task(), s, w.toTF("x"))
}

// capture returns the bytes of an answer, with 0 as the time of the send.
func (w *world) capture(from cluster.Task, s *step, key rendezvous.Key) []byte {
	w.t.Helper()
	return w.captureID(from, s, key, stepID()) // any number that is not 0
}

func (w *world) captureID(from cluster.Task, s *step, key rendezvous.Key, id int64) []byte {
	w.t.Helper()
	conn, err := w.conns.Conn(from)
	if err != nil {
		w.t.Fatal(err)
	}
	var b []byte
	err = conn.Invoke(w.soon(), tensorflowgrpc.WorkerService_RecvTensor_FullMethodName,
		&tfpb.RecvTensorRequest{StepId: s.id, RendezvousKey: key.String(), RequestId: id}, &b, grpc.ForceCodecV2(rawCodec{}))
	if err != nil {
		w.t.Fatal(err)
	}
	return w.withoutTime(b)
}

// withoutTime puts 0 in the place of send_start_micros (field 3), and leaves all
// else where it is.
func (w *world) withoutTime(b []byte) (out []byte) {
	w.t.Helper()
	const sendStartMicros = 3
	for len(b) > 0 {
		num, _, n := protowire.ConsumeField(b)
		if n < 0 {
			w.t.Fatalf("the answer does not parse: %v", protowire.ParseError(n))
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

// rawCodec gives an answer as it came, and writes requests as protobuf does.
type rawCodec struct{}

func (rawCodec) Name() string { return "proto" }

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	m, ok := v.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("%T is no message", v)
	}
	b, err := proto.Marshal(m)
	return mem.BufferSlice{mem.SliceBuffer(b)}, err
}

func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	b, ok := v.(*[]byte)
	if !ok {
		return fmt.Errorf("%T is no slice of bytes", v)
	}
	*b = data.Materialize()
	return nil
}
