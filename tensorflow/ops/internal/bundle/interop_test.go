//go:build interop

package bundle

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// tensorFlow runs integration/tensorflow/bundles.py.
func tensorFlow(t *testing.T, what, dir string) {
	t.Helper()
	python := os.Getenv("TENSORFLOW_PYTHON")
	if python == "" {
		t.Fatal("TENSORFLOW_PYTHON is not set; make interop sets it")
	}
	out, err := exec.CommandContext(t.Context(), python, "../../../../integration/tensorflow/bundles.py", what, dir).CombinedOutput()
	if err != nil {
		t.Fatalf("TensorFlow, %s: %v\n%s", what, err, out)
	}
}

// TestTensorFlowReadsWhatGoWrote: all types, scalars, empty tensors, variables in parts, merged ones, and an index of
// several blocks.
func TestTensorFlowReadsWhatGoWrote(t *testing.T) {
	dir := t.TempDir()
	writeAll(t, dir)
	tensorFlow(t, "check", dir)
}

// TestGoReadsWhatTensorFlowWrites is TestReadsWhatTensorFlowWrote with the TensorFlow that is installed. The index of
// several blocks has the same bytes in both.
func TestGoReadsWhatTensorFlowWrites(t *testing.T) {
	dir, own := t.TempDir(), t.TempDir()
	tensorFlow(t, "write", dir)
	tensorFlow(t, "large", dir)
	checkAll(t, dir, "whole", "parts", "merged", "large")
	writeAll(t, own)
	want, err := os.ReadFile(filepath.Join(dir, "large.index"))
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(own, "large.index"))
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("large.index of %d bytes differs from that of TensorFlow, of %d; %v", len(got), len(want), err)
	}
}
