package checkpoint_test

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/tryst-rdma/tryst/internal/checkpoint"
	trystpb "github.com/tryst-rdma/tryst/internal/proto/tryst"
	"github.com/tryst-rdma/tryst/internal/proto/trystgrpc"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/npy"
	"github.com/tryst-rdma/tryst/tensor/tensortest"
)

const mib = 1 << 20

// patterned is a tensor of which no two pieces are alike.
func patterned(t testing.TB, name string, n int) *tensor.Tensor {
	t.Helper()
	x := named(t, name, tensor.Uint8, int64(n))
	const block = 64 << 10
	b := x.Bytes()
	for i := range b[:min(n, block)] {
		b[i] = byte(i ^ i>>8)
	}
	for at := block; at < n; at += block {
		copy(b[at:], b[:block])
		b[at] = byte(at / block)
		b[at+min(1, n-at-1)] ^= byte(at / block >> 8)
	}
	return x
}

// piecesOf opens a publication in pieces and returns the keys of one tensor, in order.
func (c *client) piecesOf(t testing.TB, name string, pieceBytes uint64) ([]*trystpb.TensorKey, error) {
	t.Helper()
	stream, err := trystgrpc.NewPublicationsClient(c.conn).Open(t.Context(), &trystpb.OpenRequest{
		Publication: "m", Puller: "/job:client/replica:0/task:17", PieceBytes: pieceBytes,
	})
	must(t, err)
	var all []*trystpb.TensorKey
	for {
		resp, err := stream.Recv()
		if err != nil {
			return nil, err
		}
		for _, k := range resp.GetKeys() {
			if k.GetName() == name {
				all = append(all, k)
			}
		}
		if resp.GetLast() {
			return all, nil
		}
	}
}

func TestLargeTensorIsGivenInPieces(t *testing.T) {
	const size = 5*mib + 77
	x := patterned(t, "x", size)
	file := writeSafetensors(t, filepath.Join(t.TempDir(), "m.safetensors"), nil, x)
	array := writeNPY(t, filepath.Join(t.TempDir(), "x.npy"), x)
	for what, publish := range map[string]func(h *host){
		"file":   func(h *host) { h.publish("m", file) },
		"array":  func(h *host) { h.publish("m", array) },
		"memory": func(h *host) { _, err := h.catalog.PublishTensors(t.Context(), "m", x); must(t, err) },
	} {
		for _, mmap := range []bool{false, true} {
			h := serve(t, func(o *checkpoint.CatalogOptions) { o.CacheBytes, o.MMap = -1, mmap })
			publish(h)
			keys, err := h.dial().piecesOf(t, "x", 2*mib)
			must(t, err)
			if len(keys) != 3 {
				t.Fatalf("%s: %d keys", what, len(keys))
			}
			var got []byte
			for _, k := range keys {
				if k.GetOffset() != uint64(len(got)) {
					t.Errorf("%s: a piece at %d follows %d bytes", what, k.GetOffset(), len(got))
				}
				key, err := rendezvous.ParseKey(k.GetKey())
				must(t, err)
				v, err := h.manager.RecvLocal(t.Context(), 42, key)
				must(t, err)
				if v.Tensor.DType() != tensor.Uint8 || v.Tensor.Size() != int64(k.GetBytes()) {
					t.Errorf("%s: a piece of %d bytes is %v", what, k.GetBytes(), v.Tensor)
				}
				got = append(got, v.Tensor.Bytes()...)
				v.Tensor.Release()
			}
			if !bytes.Equal(got, x.Bytes()) {
				t.Errorf("%s: the pieces are not the tensor", what)
			}
		}
	}
}

// Strings, converted arrays and tensors that are not larger than a piece are given whole.
func TestTensorsThatAreGivenWhole(t *testing.T) {
	h := serve(t)
	_, err := h.catalog.PublishTensors(t.Context(), "m", tensortest.Strings(t, strings.Repeat("a", 3*mib)).Named("strings"), patterned(t, "exact", 2*mib))
	must(t, err)
	for _, name := range []string{"strings", "exact"} {
		keys, err := h.dial().piecesOf(t, name, 2*mib)
		must(t, err)
		if len(keys) != 1 || keys[0].GetBytes() != 0 {
			t.Errorf("%s: %v", name, keys)
		}
	}
	h = serve(t)
	swapped := filepath.Join(t.TempDir(), "x.npy")
	header, err := npy.Header(tensor.Int32, tensor.Vector(mib))
	must(t, err)
	writeFile(t, swapped, append(bytes.Replace(header, []byte("<i4"), []byte(">i4"), 1), make([]byte, 4*mib)...))
	h.publish("m", swapped)
	keys, err := h.dial().piecesOf(t, "x", 2*mib)
	must(t, err)
	if len(keys) != 1 || keys[0].GetBytes() != 0 {
		t.Errorf("an array of big-endian elements: %v", keys)
	}
}

// A puller can request no other pieces than those on the grid, so that the cache has few of them.
func TestPiecesOffTheGridAreRefused(t *testing.T) {
	h := serve(t)
	pub := h.publish("m", writeSafetensors(t, filepath.Join(t.TempDir(), "m.safetensors"), nil, patterned(t, "x", 3*mib+5)))
	c := h.dial()
	for _, n := range []uint64{1, mib + 1, 1 << 40, 1<<63 + mib} {
		if _, err := c.piecesOf(t, "x", n); grpcstatus.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "multiple of 1048576") {
			t.Errorf("pieces of %d bytes: %v", n, err)
		}
	}
	keys, err := c.piecesOf(t, "x", mib)
	must(t, err)
	right := fmt.Sprintf("@%s:%d+%d/", pub.Version, 3*mib, 5)
	if len(keys) != 4 || !strings.Contains(keys[3].GetKey(), right) {
		t.Fatalf("keys %v", keys)
	}
	for _, wrong := range []string{"0+5", "1+1048576", "1048577+1048576", "3145728+6", "3145728+1048576", "4194304+1048576", "1048576+9223372036854775807", "9223372036854775807+1", "0+0"} {
		key, err := rendezvous.ParseKey(strings.Replace(keys[3].GetKey(), right, "@"+pub.Version+":"+wrong+"/", 1))
		must(t, err)
		if wrong == "0+0" { // no name of a publication: it waits for a Send
			if h.catalog.Publishes(key) {
				t.Error("an empty piece is a publication's")
			}
			continue
		}
		_, err = h.manager.RecvLocal(t.Context(), 42, key)
		mustBe(t, err, status.NotFound, "piece of", `"x"`)
	}
	if n := h.alloc.InUse(); n != 0 {
		t.Errorf("%d bytes are cached", n)
	}
}

// Pieces share reads and the cache as tensors do, and leave it when they are withdrawn.
func TestPiecesAreCachedAndForgotten(t *testing.T) {
	h := serve(t)
	h.publish("m", writeSafetensors(t, filepath.Join(t.TempDir(), "m.safetensors"), nil, patterned(t, "x", 3*mib)))
	_, err := h.dial().piecesOf(t, "x", mib)
	must(t, err)
	keys, err := h.dial().piecesOf(t, "x", mib) // beside the first pull, which is under way
	must(t, err)
	key, err := rendezvous.ParseKey(keys[1].GetKey())
	must(t, err)
	a, err := h.manager.RecvLocal(t.Context(), 42, key)
	must(t, err)
	b, err := h.manager.RecvLocal(t.Context(), 43, key)
	must(t, err)
	if a.Tensor.Buffer() != b.Tensor.Buffer() {
		t.Error("a piece was read twice")
	}
	a.Tensor.Release()
	b.Tensor.Release()
	if n := h.alloc.InUse(); n != mib {
		t.Errorf("%d bytes are cached", n)
	}
	must(t, h.withdraw("m"))
	if n := h.alloc.InUse(); n != 0 {
		t.Errorf("%d bytes of what was withdrawn are cached", n)
	}
	_, err = h.manager.RecvLocal(t.Context(), 44, key)
	mustBe(t, err, status.NotFound, "withdrawn")
}
