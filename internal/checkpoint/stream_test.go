package checkpoint_test

import (
	"bytes"
	"context"
	"path/filepath"
	"testing"

	"github.com/tryst-rdma/tryst/internal/checkpoint"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/tensortest"
)

// A stream gets the bytes of the only file, also of one whose elements are converted.
func TestStreamWritesTheSameBytes(t *testing.T) {
	dir := t.TempDir()
	for what, path := range map[string]string{
		"ours":          writeSafetensors(t, filepath.Join(dir, "m.safetensors"), map[string]string{"format": "pt"}, model(t)...),
		"foreign":       foreign(t, filepath.Join(dir, "foreign.safetensors")),
		"empty":         writeSafetensors(t, filepath.Join(dir, "e.safetensors"), nil),
		"array":         writeNPY(t, filepath.Join(dir, "a.npy"), tensortest.Tensor(t, tensor.Float32, 3, 4)),
		"foreign array": foreignArray(t, filepath.Join(dir, "be.npy")),
		"strings":       wideStrings(t, filepath.Join(dir, "w.npy")),
	} {
		t.Run(what, func(t *testing.T) {
			h := serve(t)
			pub := h.publish("m", path)
			var out bytes.Buffer
			var given checkpoint.Summary
			sum, err := h.dial().Stream(t.Context(), checkpoint.PullRequest{Summary: &given}, &out)
			must(t, err)
			if !bytes.Equal(readFile(t, path), out.Bytes()) {
				t.Error("the copy differs")
			}
			if sum.Tensors != pub.Tensors || sum.Bytes != pub.Bytes || sum.Publication.Version != pub.Version || given.Digest != sum.Digest {
				t.Errorf("summary %+v", sum)
			}
		})
	}
}

// A stream has no place for a second file.
func TestStreamRefusesSeveralFiles(t *testing.T) {
	tensors := model(t)
	h := serve(t)
	h.publish("m", writeSharded(t, t.TempDir(), tensors...))
	c := h.dial()
	stream := func(patterns ...string) ([]byte, error) {
		var out bytes.Buffer
		_, err := c.Stream(t.Context(), checkpoint.PullRequest{Tensors: patterns}, &out)
		return out.Bytes(), err
	}
	b, err := stream()
	mustBe(t, err, status.InvalidArgument, `"m"`, "in 2 files", "into a directory", "choose tensors of one file")
	if len(b) != 0 {
		t.Errorf("%d bytes are written", len(b))
	}
	// The tensors of one of them are that file.
	b, err = stream("wte.weight", "h.0/*")
	must(t, err)
	want := writeSafetensors(t, filepath.Join(t.TempDir(), "w"),
		map[string]string{"format": "pt", "part": "model-00001-of-00002.safetensors"}, tensors[:3]...)
	if !bytes.Equal(b, readFile(t, want)) {
		t.Error("the stream is not the first file")
	}
}

func TestStreamOfTensorsInMemory(t *testing.T) {
	tensors := model(t)
	h := serve(t)
	_, err := h.catalog.PublishTensors(t.Context(), "m", tensors...)
	must(t, err)
	var out bytes.Buffer
	_, err = h.dial().Stream(t.Context(), checkpoint.PullRequest{}, &out)
	must(t, err)
	again := serve(t)
	path := filepath.Join(t.TempDir(), "m.safetensors")
	writeFile(t, path, out.Bytes())
	again.publish("m", path)
	requireSame(t, tensors, again.dial().pull(t, checkpoint.PullRequest{}))
}

// What is damaged is not written, and a writer that fails ends the pull.
func TestStreamEndsWithTheFirstError(t *testing.T) {
	h := serve(t)
	x := named(t, "x", tensor.Uint8, 1000)
	bad := x.Bytes()[0] + 1
	_, err := h.catalog.PublishTensors(t.Context(), "m", x)
	must(t, err)
	c := h.dial()
	_, err = c.Stream(t.Context(), checkpoint.PullRequest{}, failing{})
	mustBe(t, err, status.Cancelled, "writing")
	h.damage = func(v rendezvous.Value) { v.Tensor.Bytes()[0] = bad }
	var out bytes.Buffer
	_, err = c.Stream(t.Context(), checkpoint.PullRequest{}, &out)
	mustBe(t, err, status.DataLoss, `"x"`)
	if out.Len() >= 1000 {
		t.Errorf("%d bytes are written", out.Len())
	}
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, context.Canceled }
