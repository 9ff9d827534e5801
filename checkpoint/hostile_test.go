package checkpoint_test

import (
	"context"
	"math"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/tryst-rdma/tryst/checkpoint"
	"github.com/tryst-rdma/tryst/cluster"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	trystpb "github.com/tryst-rdma/tryst/proto/tryst"
	"github.com/tryst-rdma/tryst/proto/trystgrpc"
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
}

func (l *liar) Describe(context.Context, *trystpb.DescribeRequest) (*trystpb.DescribeResponse, error) {
	return l.manifest, nil
}

// pullFrom returns a puller of a server that is nothing but its publications.
func pullFrom(t *testing.T, s trystgrpc.PublicationsServer) *checkpoint.Puller {
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
	return checkpoint.NewPuller(checkpoint.PullerOptions{Conn: conn, Task: cluster.ClientTask(), Incarnation: 1})
}

// A puller makes files of the names in a manifest, and memory of its sizes: what contradicts
// itself is refused before anything is opened.
func TestManifestIsChecked(t *testing.T) {
	file := func(name string) *trystpb.FileInfo {
		return &trystpb.FileInfo{Name: name, Format: checkpoint.FormatSafetensors, Bytes: 100}
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
		{"a file twice", []*trystpb.FileInfo{file("a"), file("a")}, nil, status.InvalidArgument, `file "a" stands twice`},
		{"a file elsewhere", []*trystpb.FileInfo{file("../a")}, nil, status.InvalidArgument, "not a plain file name"},
		{"a file below", []*trystpb.FileInfo{file(`b\a`)}, nil, status.InvalidArgument, "not a plain file name"},
		{"the directory", []*trystpb.FileInfo{file("..")}, nil, status.InvalidArgument, "not a plain file name"},
		{"a control character", []*trystpb.FileInfo{file("a\n")}, nil, status.InvalidArgument, "not a plain file name"},
		{"a long name", []*trystpb.FileInfo{file(strings.Repeat("a", 256))}, nil, status.InvalidArgument, "not a plain file name"},
		{"another format", []*trystpb.FileInfo{{Name: "a", Format: "zip"}}, nil, status.Unimplemented, `unknown format "zip"`},
		{"a tensor twice", nil, []*trystpb.TensorInfo{info("x", nil), info("x", nil)}, status.InvalidArgument, `tensor "x" stands twice`},
		{"no name", nil, []*trystpb.TensorInfo{info("", nil)}, status.InvalidArgument, "is empty"},
		{"no such file", []*trystpb.FileInfo{file("a")}, []*trystpb.TensorInfo{info("x", func(x *trystpb.TensorInfo) { x.File = 1 })}, status.InvalidArgument, "it is in file 1 of 1"},
		{"no file at all", nil, []*trystpb.TensorInfo{info("x", func(x *trystpb.TensorInfo) { x.File = 1 })}, status.InvalidArgument, "it is in file 1 of 0"},
		{"an offset beyond files", nil, []*trystpb.TensorInfo{info("x", func(x *trystpb.TensorInfo) { x.FileOffset = 1 << 63 })}, status.InvalidArgument, "more than a file can have"},
		{"bytes beyond files", nil, []*trystpb.TensorInfo{info("x", func(x *trystpb.TensorInfo) { x.Dtype, x.Bytes = tfpb.DataType_DT_STRING, 1<<63 })}, status.InvalidArgument, "more than a file can have"},
		{"other bytes than the shape has", nil, []*trystpb.TensorInfo{info("x", func(x *trystpb.TensorInfo) { x.Bytes = 25 })}, status.InvalidArgument, "float[2,3] takes 24 bytes, not 25"},
		{"more bytes than there are", nil, []*trystpb.TensorInfo{info("x", huge), info("y", huge)}, status.InvalidArgument, "more than 2^63-1 bytes"},
		{"another type", nil, []*trystpb.TensorInfo{info("x", func(x *trystpb.TensorInfo) { x.Dtype = 77 })}, status.Unimplemented, "not known here"},
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

// What is received must be the tensor that the manifest says, also without digests.
func TestAnotherTensorIsDataLoss(t *testing.T) {
	for name, other := range map[string]*tensor.Tensor{
		"another type":  tensortest.Tensor(t, tensor.Int32, 2, 3),
		"another shape": tensortest.Tensor(t, tensor.Float32, 3, 2),
		"other content": named(t, "x", tensor.Float32, 2, 3).Named("other"),
	} {
		t.Run(name, func(t *testing.T) {
			h := serve(t)
			x := named(t, "x", tensor.Float32, 2, 3)
			if name == "other content" {
				other = tensortest.Tensor(t, tensor.Float32, 2, 3)
				other.Bytes()[0] ^= 1
			}
			_, err := h.catalog.PublishTensors("m", x)
			must(t, err)
			h.replace = func(v rendezvous.Value) rendezvous.Value {
				v.Tensor.Release()
				v.Tensor = other.Retain()
				return v
			}
			_, err = h.dial().tryPull(t, checkpoint.PullRequest{})
			mustBe(t, err, status.DataLoss, `"x"`)
		})
	}
}

// A digest is of all of a tensor, however many pieces it is read in.
func TestDigestOfManyPieces(t *testing.T) {
	x := named(t, "x", tensor.Uint8, 5<<19) // two pieces and a half
	for i := range x.Bytes() {
		x.Bytes()[i] = byte(i >> 10)
	}
	h := serve(t, func(o *checkpoint.CatalogOptions) { o.CacheBytes = -1 })
	h.publish("m", writeSafetensors(t, filepath.Join(t.TempDir(), "m.safetensors"), nil, x))
	requireSame(t, []*tensor.Tensor{x}, h.dial().pull(t, checkpoint.PullRequest{}))
}
