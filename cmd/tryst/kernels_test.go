package main

import (
	"strings"
	"testing"
)

// TestKernelsOfServe: the setting chooses the kernels of this binary or none; those of TensorFlow's
// library are in another binary, which the error names.
func TestKernelsOfServe(t *testing.T) {
	if set, err := kernelSet("go"); err != nil || set == nil || set.Name() != "go" {
		t.Error(set, err)
	}
	if set, err := kernelSet("none"); err != nil || set != nil {
		t.Error(set, err)
	}
	if _, err := kernelSet("tensorflow"); err == nil || !strings.Contains(err.Error(), "tryst-tensorflow") {
		t.Error(err)
	}
}
