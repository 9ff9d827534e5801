package checkpoint_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/checkpoint"
	trystpb "github.com/tryst-rdma/tryst/internal/proto/tryst"
	"github.com/tryst-rdma/tryst/internal/proto/trystgrpc"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/tensortest"
)

// What a server may say, and a puller must not believe.

// liar is a server of one publication whose manifest nobody here would write.
type liar struct {
	trystgrpc.UnimplementedPublicationsServer
	manifest *trystpb.DescribeResponse
	opened   []*trystpb.OpenResponse

	later     *trystpb.DescribeResponse // if not nil, all answers but the first
	described atomic.Int32
}

func (l *liar) Open(_ *trystpb.OpenRequest, stream grpc.ServerStreamingServer[trystpb.OpenResponse]) error {
	for _, m := range l.opened {
		if err := stream.Send(m); err != nil {
			return err
		}
	}
	<-stream.Context().Done()
	return nil
}

func (l *liar) Describe(context.Context, *trystpb.DescribeRequest) (*trystpb.DescribeResponse, error) {
	if l.described.Add(1) > 1 && l.later != nil {
		return l.later, nil
	}
	return l.manifest, nil
}

// pullFrom returns a puller of a server that is nothing but its publications.
func pullFrom(t *testing.T, s trystgrpc.PublicationsServer) *checkpoint.Puller {
	t.Helper()
	return pullFromReceiver(t, s, nil)
}

func pullFromReceiver(t *testing.T, s trystgrpc.PublicationsServer, r checkpoint.Receiver) *checkpoint.Puller {
	t.Helper()
	lis := bufconn.Listen(1 << 20)
	g := grpc.NewServer()
	trystgrpc.RegisterPublicationsServer(g, s)
	go g.Serve(lis) //nolint:errcheck // it ends with Stop
	t.Cleanup(g.Stop)
	conn, err := grpc.NewClient("passthrough:///liar", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }))
	must(t, err)
	t.Cleanup(func() { conn.Close() })
	return checkpoint.NewPuller(checkpoint.PullerOptions{Conn: conn, Task: cluster.ClientTask(), Incarnation: 1, Receiver: r})
}

// A puller makes files of the names in a manifest, and memory of its sizes: what contradicts
// itself is refused before anything is opened.
func TestManifestIsChecked(t *testing.T) {
	file := func(name string) *trystpb.FileInfo {
		return &trystpb.FileInfo{Name: name, Format: checkpoint.FormatSafetensors, Bytes: 100}
	}
	index := func(name, content string) *trystpb.FileInfo {
		return &trystpb.FileInfo{Name: name, Format: checkpoint.FormatIndex, Bytes: uint64(len(content)), Header: []byte(content)}
	}
	info := func(name string, change func(*trystpb.TensorInfo)) *trystpb.TensorInfo {
		x := &trystpb.TensorInfo{Name: name, Dtype: tfpb.DataType_DT_FLOAT, Shape: []int64{2, 3}, Bytes: 24}
		if change != nil {
			change(x)
		}
		return x
	}
	huge := func(x *trystpb.TensorInfo) { x.Shape, x.Bytes = []int64{math.MaxInt64 / 4}, math.MaxInt64/4*4 }
	for _, c := range []struct {
		name    string
		files   []*trystpb.FileInfo
		tensors []*trystpb.TensorInfo
		code    status.Code
		want    string
	}{
		{"a file twice", []*trystpb.FileInfo{file("a.safetensors"), file("a.safetensors")}, nil, status.InvalidArgument, `file "a.safetensors" stands twice`},
		{"a file elsewhere", []*trystpb.FileInfo{file("../a.safetensors")}, nil, status.InvalidArgument, "not a plain file name"},
		{"a file below", []*trystpb.FileInfo{file(`b\a.safetensors`)}, nil, status.InvalidArgument, "not a plain file name"},
		{"the directory", []*trystpb.FileInfo{file("..")}, nil, status.InvalidArgument, "not a plain file name"},
		{"a control character", []*trystpb.FileInfo{file("a\n.safetensors")}, nil, status.InvalidArgument, "not a plain file name"},
		{"a long name", []*trystpb.FileInfo{file(strings.Repeat("a", 256) + ".safetensors")}, nil, status.InvalidArgument, "not a plain file name"},
		{"another format", []*trystpb.FileInfo{{Name: "a.zip", Format: "zip"}}, nil, status.Unimplemented, `unknown format "zip"`},
		{"a part of an index", []*trystpb.FileInfo{{Name: "i.index.json", Format: checkpoint.FormatIndex, Bytes: 5, Header: []byte("{}")}}, nil, status.InvalidArgument, `index "i.index.json" has 5 bytes, and 2 came`},
		{"a tensor in an index", []*trystpb.FileInfo{index("i.index.json", `{"weight_map":{}}`)}, []*trystpb.TensorInfo{info("x", nil)}, status.InvalidArgument, `it is in the index "i.index.json"`},
		{"a file that begins with a dot", []*trystpb.FileInfo{file(".bashrc.safetensors")}, nil, status.InvalidArgument, "begins with a dot"},
		{"an index that begins with a dot", []*trystpb.FileInfo{index(".bashrc", `{"weight_map":{}}`)}, nil, status.InvalidArgument, "begins with a dot"},
		{"an absolute name", []*trystpb.FileInfo{file("/etc/a.safetensors")}, nil, status.InvalidArgument, "not a plain file name"},
		{"an index with the name of a program", []*trystpb.FileInfo{index("sitecustomize.py", `{"weight_map":{}}`)}, nil, status.InvalidArgument, "does not end in .index.json"},
		{"a file with the name of a configuration", []*trystpb.FileInfo{file("config.json")}, nil, status.InvalidArgument, "does not end in .safetensors"},
		{"a .part", []*trystpb.FileInfo{file("a.safetensors.part")}, nil, status.InvalidArgument, "does not end in .safetensors"},
		{"an array with another name", []*trystpb.FileInfo{{Name: "a.safetensors", Format: checkpoint.FormatNPY}}, nil, status.InvalidArgument, "does not end in .npy"},
		{"an index that is a program", []*trystpb.FileInfo{index("i.index.json", "import os")}, nil, status.InvalidArgument, `index "i.index.json"`},
		{"an index of another form", []*trystpb.FileInfo{index("i.index.json", `{"weight_map":{"x":1}}`)}, nil, status.InvalidArgument, `index "i.index.json"`},
		{"an index that leads out", []*trystpb.FileInfo{index("i.index.json", `{"weight_map":{"x":"../x"}}`)}, nil, status.InvalidArgument, `index "i.index.json"`},
		{"a tensor twice", nil, []*trystpb.TensorInfo{info("x", nil), info("x", nil)}, status.InvalidArgument, `tensor "x" stands twice`},
		{"no name", nil, []*trystpb.TensorInfo{info("", nil)}, status.InvalidArgument, "is empty"},
		{"no such file", []*trystpb.FileInfo{file("a.safetensors")}, []*trystpb.TensorInfo{info("x", func(x *trystpb.TensorInfo) { x.File = 1 })}, status.InvalidArgument, "it is in file 1 of 1"},
		{"no file at all", nil, []*trystpb.TensorInfo{info("x", func(x *trystpb.TensorInfo) { x.File = 1 })}, status.InvalidArgument, "it is in file 1 of 0"},
		{"an offset beyond files", nil, []*trystpb.TensorInfo{info("x", func(x *trystpb.TensorInfo) { x.FileOffset = 1 << 63 })}, status.InvalidArgument, "more than a file can have"},
		{"bytes beyond files", nil, []*trystpb.TensorInfo{info("x", func(x *trystpb.TensorInfo) { x.Dtype, x.Bytes = tfpb.DataType_DT_STRING, 1<<63 })}, status.InvalidArgument, "more than a file can have"},
		{"other bytes than the shape has", nil, []*trystpb.TensorInfo{info("x", func(x *trystpb.TensorInfo) { x.Bytes = 25 })}, status.InvalidArgument, "float[2,3] takes 24 bytes, not 25"},
		{"more bytes than there are", nil, []*trystpb.TensorInfo{info("x", huge), info("y", huge)}, status.InvalidArgument, "more than 2^63-1 bytes"},
		{"another type", nil, []*trystpb.TensorInfo{info("x", func(x *trystpb.TensorInfo) { x.Dtype = 77 })}, status.Unimplemented, "not known here"},
		{"a packed type that is none", nil, []*trystpb.TensorInfo{info("x", func(x *trystpb.TensorInfo) { x.PackedType = "F5" })}, status.InvalidArgument, `"F5" is no packed type`},
		{"a packed type of other bytes", nil, []*trystpb.TensorInfo{info("x", func(x *trystpb.TensorInfo) {
			x.Dtype, x.Shape, x.Bytes, x.PackedType, x.PackedShape = tfpb.DataType_DT_UINT8, []int64{3}, 3, "F4", []int64{4}
		})}, status.InvalidArgument, "the bytes of F4[4] are uint8[2], not uint8[3]"},
		{"a packed type with a negative dimension", nil, []*trystpb.TensorInfo{info("x", func(x *trystpb.TensorInfo) { x.PackedType, x.PackedShape = "F4", []int64{-1} })}, status.InvalidArgument, "negative"},
		{"a negative dimension", nil, []*trystpb.TensorInfo{info("x", func(x *trystpb.TensorInfo) { x.Shape = []int64{-1} })}, status.InvalidArgument, "negative"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := pullFrom(t, &liar{manifest: &trystpb.DescribeResponse{
				Publication: &trystpb.Publication{Name: "m", Version: "1"}, DigestAlgorithm: "xxh64", Files: c.files, Tensors: c.tensors,
			}})
			_, err := p.Describe(t.Context(), "m", "")
			mustBe(t, err, c.code, c.want, `publication "m"`)
		})
	}
}

// The keys of a pull are those of its tensors, in one step.
func TestKeysAreChecked(t *testing.T) {
	const device = "/job:worker/replica:0/task:0/device:CPU:0"
	keys := func(step int64, last bool, names ...string) *trystpb.OpenResponse {
		r := &trystpb.OpenResponse{StepId: step, Last: last}
		for _, n := range names {
			r.Keys = append(r.Keys, &trystpb.TensorKey{Name: n, Key: rendezvous.CreateKey(device, 1, device, n, rendezvous.FrameIter{})})
		}
		return r
	}
	for name, c := range map[string]struct {
		opened []*trystpb.OpenResponse
		code   status.Code
		want   string
	}{
		"more than there are":     {[]*trystpb.OpenResponse{keys(5, true, "x", "y", "z")}, status.Internal, "not one of the 2 tensors"},
		"more in many messages":   {[]*trystpb.OpenResponse{keys(5, false, "x", "y"), keys(5, true, "z")}, status.Internal, "not one of the 2 tensors"},
		"another step meanwhile":  {[]*trystpb.OpenResponse{keys(5, false, "x"), keys(6, true, "y")}, status.Internal, "changed the step from 5 to 6"},
		"one is missing":          {[]*trystpb.OpenResponse{keys(5, true, "x")}, status.Internal, `no key for tensor "y"`},
		"one that does not parse": {[]*trystpb.OpenResponse{{StepId: 5, Keys: []*trystpb.TensorKey{{Name: "x", Key: "?"}}}}, status.InvalidArgument, `"x"`},
	} {
		t.Run(name, func(t *testing.T) {
			info := func(name string) *trystpb.TensorInfo {
				return &trystpb.TensorInfo{Name: name, Dtype: tfpb.DataType_DT_FLOAT, Bytes: 4}
			}
			p := pullFrom(t, &liar{opened: c.opened, manifest: &trystpb.DescribeResponse{
				Publication: &trystpb.Publication{Name: "m", Version: "1"}, DigestAlgorithm: "xxh64",
				Tensors: []*trystpb.TensorInfo{info("x"), info("y")},
			}})
			_, err := p.Save(t.Context(), checkpoint.PullRequest{Publication: "m"}, checkpoint.SaveOptions{Out: filepath.Join(t.TempDir(), "m.safetensors")})
			mustBe(t, err, c.code, c.want)
		})
	}
}

// The pieces of a tensor come in order and without gaps, on the grid that was asked for.
func TestKeysOfPiecesAreChecked(t *testing.T) {
	const device = "/job:worker/replica:0/task:0/device:CPU:0"
	key := rendezvous.CreateKey(device, 1, device, "x", rendezvous.FrameIter{})
	piece := func(off, n uint64) *trystpb.TensorKey {
		return &trystpb.TensorKey{Name: "x", Key: key, Offset: off, Bytes: n}
	}
	const size, step = 2*checkpoint.PieceBytes + 2*mib, checkpoint.PieceBytes
	for name, c := range map[string]struct {
		keys []*trystpb.TensorKey
		want string
	}{
		"the last is missing":  {[]*trystpb.TensorKey{piece(0, step), piece(step, step)}, fmt.Sprintf("no key for tensor \"x\" from byte %d of %d", 2*step, size)},
		"the first is missing": {[]*trystpb.TensorKey{piece(step, step)}, "no such piece"},
		"one stands twice":     {[]*trystpb.TensorKey{piece(0, step), piece(0, step)}, "no such piece"},
		"of another length":    {[]*trystpb.TensorKey{piece(0, step/2)}, "no such piece"},
		"beyond the end":       {[]*trystpb.TensorKey{piece(0, step), piece(step, step), piece(2*step, step)}, "no such piece"},
		"after the end":        {[]*trystpb.TensorKey{piece(0, step), piece(step, step), piece(2*step, size-2*step), piece(size, 1)}, "no such piece"},
		"of no length":         {[]*trystpb.TensorKey{piece(step, 0)}, "no such piece"},
		"huge":                 {[]*trystpb.TensorKey{piece(1<<63, 1<<63)}, "no such piece"},
		"and the whole tensor": {[]*trystpb.TensorKey{piece(0, step), piece(0, 0)}, "more than one key"},
		"after the whole":      {[]*trystpb.TensorKey{piece(0, 0), piece(0, step)}, "more than one key"},
	} {
		t.Run(name, func(t *testing.T) {
			p := pullFrom(t, &liar{opened: []*trystpb.OpenResponse{{StepId: 5, Keys: c.keys, Last: true}}, manifest: &trystpb.DescribeResponse{
				Publication: &trystpb.Publication{Name: "m", Version: "1"}, DigestAlgorithm: "xxh64",
				Tensors: []*trystpb.TensorInfo{{Name: "x", Dtype: tfpb.DataType_DT_UINT8, Shape: []int64{size}, Bytes: size}},
			}})
			dir := t.TempDir()
			_, err := p.Save(t.Context(), checkpoint.PullRequest{Publication: "m"}, checkpoint.SaveOptions{Out: filepath.Join(dir, "m.safetensors")})
			mustBe(t, err, status.Internal, c.want)
			requireOnly(t, dir)
		})
	}
}

// A header that a server sends for a file fits its tensors: it says where each is written.
func TestHeaderIsChecked(t *testing.T) {
	text := func(header string) []byte {
		return append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header...)
	}
	const x, y = `"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}`, `"y":{"dtype":"U8","shape":[1],"data_offsets":[8,9]}`
	good := text(`{` + x + `,` + y + `}`)
	long := append(slices.Clone(good), 0)
	for name, c := range map[string]struct {
		header []byte
		bytes  int
		want   string
	}{
		"as it is":                   {good, len(good) + 9, ""},
		"too few tensors":            {text(`{` + x + `}`), len(text(`{`+x+`}`)) + 8, "does not fit its 2 tensors"},
		"another name":               {text(`{` + x + `,` + strings.Replace(y, "y", "z", 1) + `}`), len(good) + 9, `does not fit its tensor "z"`},
		"another type":               {text(`{` + x + `,` + strings.Replace(y, "U8", "I8", 1) + `}`), len(good) + 9, `does not fit its tensor "y"`},
		"another shape":              {text(`{` + x + `,` + strings.Replace(y, "[1]", "[1,1]", 1) + `}`), len(good) + 11, `does not fit its tensor "y"`},
		"more than stands in front":  {long, len(good) + 9, "does not fit its 2 tensors"},
		"more bytes than it says":    {good, len(good) + 10, "header"},
		"a header that is no header": {text(`{`), 18, "header"},
	} {
		t.Run(name, func(t *testing.T) {
			p := pullFrom(t, &liar{manifest: &trystpb.DescribeResponse{
				Publication: &trystpb.Publication{Name: "m", Version: "1"}, DigestAlgorithm: "xxh64",
				Files: []*trystpb.FileInfo{{Name: "m.safetensors", Format: checkpoint.FormatSafetensors, Bytes: uint64(c.bytes), Header: c.header}}, //nolint:gosec // small
				Tensors: []*trystpb.TensorInfo{
					{Name: "x", Dtype: tfpb.DataType_DT_FLOAT, Shape: []int64{2}, Bytes: 8}, {Name: "y", Dtype: tfpb.DataType_DT_UINT8, Shape: []int64{1}, Bytes: 1},
				},
			}, opened: []*trystpb.OpenResponse{{StepId: 5, Last: true}}})
			_, err := p.Save(t.Context(), checkpoint.PullRequest{Publication: "m"}, checkpoint.SaveOptions{Out: filepath.Join(t.TempDir(), "m.safetensors")})
			if c.want == "" {
				mustBe(t, err, status.Internal, "no key for tensor") // the plan was good
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

// A file of an array holds one tensor.
func TestArrayFileOfManyTensors(t *testing.T) {
	x := &trystpb.TensorInfo{Name: "x", Dtype: tfpb.DataType_DT_FLOAT, Bytes: 4}
	y := &trystpb.TensorInfo{Name: "y", Dtype: tfpb.DataType_DT_FLOAT, Bytes: 4}
	for want, tensors := range map[string][]*trystpb.TensorInfo{"holds 0 tensors": nil, "holds 2 tensors": {x, y}} {
		p := pullFrom(t, &liar{manifest: &trystpb.DescribeResponse{
			Publication: &trystpb.Publication{Name: "m", Version: "1"}, DigestAlgorithm: "xxh64",
			Files:   []*trystpb.FileInfo{{Name: "m.npy", Format: checkpoint.FormatNPY, Bytes: 100}},
			Tensors: tensors,
		}})
		_, err := p.Save(t.Context(), checkpoint.PullRequest{Publication: "m"}, checkpoint.SaveOptions{Out: t.TempDir()})
		mustBe(t, err, status.Internal, "m.npy", want)
		var out bytes.Buffer
		_, err = p.Stream(t.Context(), checkpoint.PullRequest{Publication: "m"}, &out)
		mustBe(t, err, status.Internal, "m.npy", want)
		if out.Len() > 0 {
			t.Errorf("%s: %d bytes are written", want, out.Len())
		}
	}
}

// A stream has one manifest: the tensors are those for which its file was planned.
func TestStreamRequestsTheManifestOnce(t *testing.T) {
	manifest := func(tensor string) *trystpb.DescribeResponse {
		return &trystpb.DescribeResponse{
			Publication: &trystpb.Publication{Name: "m", Version: "1"}, DigestAlgorithm: "xxh64",
			Tensors: []*trystpb.TensorInfo{{Name: tensor, Dtype: tfpb.DataType_DT_FLOAT, Bytes: 4}},
		}
	}
	l := &liar{manifest: manifest("x"), later: manifest("y"), opened: []*trystpb.OpenResponse{{StepId: 5, Last: true}}}
	_, err := pullFrom(t, l).Stream(t.Context(), checkpoint.PullRequest{Publication: "m"}, io.Discard)
	mustBe(t, err, status.Internal, `no key for tensor "x"`)
	if n := l.described.Load(); n != 1 {
		t.Errorf("%d requests", n)
	}
}

// The header of an array fits the tensor, whose elements are written as it says.
func TestHeaderOfAnArrayIsChecked(t *testing.T) {
	array := func(descr, shape string) []byte {
		text := "{'descr': '" + descr + "', 'fortran_order': False, 'shape': " + shape + "}\n"
		return append([]byte("\x93NUMPY\x01\x00"), append([]byte{byte(len(text)), 0}, text...)...)
	}
	for name, c := range map[string]struct {
		header []byte
		bytes  int
		want   string
	}{
		"as it is":       {array(">i2", "(2,)"), 4, "no key for tensor"},
		"another type":   {array(">u2", "(2,)"), 4, `does not fit its tensor "x"`},
		"another shape":  {array(">i2", "(1,2)"), 4, `does not fit its tensor "x"`},
		"huge elements":  {array("|S2000000000", "(2,)"), 4, "header"},
		"more in front":  {append(array(">i2", "(2,)"), 0, 0), 2, `does not fit its tensor "x"`},
		"no header":      {[]byte("PK"), 4, "header"},
		"another length": {array(">i2", "(2,)"), 6, "header"},
	} {
		t.Run(name, func(t *testing.T) {
			p := pullFrom(t, &liar{manifest: &trystpb.DescribeResponse{
				Publication: &trystpb.Publication{Name: "m", Version: "1"}, DigestAlgorithm: "xxh64",
				Files:   []*trystpb.FileInfo{{Name: "x.npy", Format: checkpoint.FormatNPY, Bytes: uint64(len(c.header) + c.bytes), Header: c.header}}, //nolint:gosec // small
				Tensors: []*trystpb.TensorInfo{{Name: "x", Dtype: tfpb.DataType_DT_INT16, Shape: []int64{2}, Bytes: 4}},
			}, opened: []*trystpb.OpenResponse{{StepId: 5, Last: true}}})
			_, err := p.Save(t.Context(), checkpoint.PullRequest{Publication: "m"}, checkpoint.SaveOptions{Out: t.TempDir()})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

// What is received must be the tensor that the manifest says, also without digests.
func TestAnotherTensorIsDataLoss(t *testing.T) {
	for name, c := range map[string]struct {
		other *tensor.Tensor
		want  string
	}{
		"another type":  {tensortest.Tensor(t, tensor.Int32, 2, 3), "int32[2,3] was received; the manifest says float[2,3]"},
		"another shape": {tensortest.Tensor(t, tensor.Float32, 3, 2), "float[3,2] was received; the manifest says float[2,3]"},
	} {
		t.Run(name, func(t *testing.T) {
			h := serve(t)
			x := named(t, "x", tensor.Float32, 2, 3)
			_, err := h.catalog.PublishTensors(t.Context(), "m", x)
			must(t, err)
			h.replace = func(v rendezvous.Value) rendezvous.Value {
				v.Tensor.Release()
				v.Tensor = c.other.Retain()
				return v
			}
			_, err = h.dial().tryPull(t, checkpoint.PullRequest{})
			mustBe(t, err, status.DataLoss, `"x"`, c.want)
		})
	}
}

// A digest is of all of a tensor, however many pieces it is read in.
func TestDigestOfManyPieces(t *testing.T) {
	x := named(t, "x", tensor.Uint8, 5<<19) // two pieces and a half
	for i := range x.Bytes() {
		x.Bytes()[i] = byte(i>>10 + i>>20) // no piece is like another
	}
	h := serve(t, func(o *checkpoint.CatalogOptions) { o.CacheBytes = -1 })
	h.publish("m", writeSafetensors(t, filepath.Join(t.TempDir(), "m.safetensors"), nil, x))
	requireSame(t, []*tensor.Tensor{x}, h.dial().pull(t, checkpoint.PullRequest{}))
}

// TestServerThatGivesAStepIDAgain: the pull ends with words, not with TensorFlow's text for a step that was cleaned up.
func TestServerThatGivesAStepIDAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const device = "/job:worker/replica:0/task:0/device:CPU:0"
		s, own := session(cluster.ClientTask(), 1)
		m := rendezvous.NewManager(rendezvous.ManagerOptions{Session: s, Remoter: new(client)})
		defer m.Close()
		r := checkpoint.NewReceiver(m)
		r.EndStep(5) // as a pull that ends
		key := rendezvous.CreateKey(device, 1, own.String(), "x", rendezvous.FrameIter{})
		p := pullFromReceiver(t, &liar{opened: []*trystpb.OpenResponse{{StepId: 5, Last: true, Keys: []*trystpb.TensorKey{{Name: "x", Key: key}}}}, manifest: &trystpb.DescribeResponse{
			Publication: &trystpb.Publication{Name: "m", Version: "1"}, DigestAlgorithm: "xxh64",
			Tensors: []*trystpb.TensorInfo{{Name: "x", Dtype: tfpb.DataType_DT_UINT8, Shape: []int64{4}, Bytes: 4, Digest: make([]byte, 8)}},
		}}, r)
		for _, err := range p.Pull(t.Context(), checkpoint.PullRequest{Publication: "m", Retry: 5 * time.Second}) {
			mustBe(t, err, status.Aborted, `receiving tensor "x"`, "step 5 has ended: the server gave the id of a step that is over")
			if strings.Contains(err.Error(), "Cleanup") {
				t.Error(err)
			}
		}
	})
}
