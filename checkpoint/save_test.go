package checkpoint_test

import (
	"bytes"
	"path/filepath"
	"testing"

	"github.com/tryst-rdma/tryst/checkpoint"
)

func TestSaveWritesTheSameBytes(t *testing.T) {
	dir := t.TempDir()
	original := writeSafetensors(t, filepath.Join(dir, "m.safetensors"), map[string]string{"format": "pt"}, model(t)...)
	h := serve(t)
	h.publish("m", original)
	out := filepath.Join(dir, "copy.safetensors")
	if _, err := h.dial().Save(t.Context(), checkpoint.PullRequest{}, checkpoint.SaveOptions{Out: out}); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(readFile(t, original), readFile(t, out)) {
		t.Error("the copy differs")
	}
}

func TestGenerateIsDeterministic(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a.safetensors", "b.safetensors"} {
		if _, err := checkpoint.Generate(t.Context(), filepath.Join(dir, name), checkpoint.GenerateOptions{Model: "tiny", Seed: 7}); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(readFile(t, filepath.Join(dir, "a.safetensors")), readFile(t, filepath.Join(dir, "b.safetensors"))) {
		t.Error("the same seed gave other bytes")
	}
}
