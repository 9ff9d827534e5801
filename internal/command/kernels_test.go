package command

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/tryst-rdma/tryst/graph"
	"github.com/tryst-rdma/tryst/graph/ops"
)

// TestKernelsOfServe: the setting chooses the kernels of the command, those in Go, or none. A command
// without TensorFlow's library names the one that has it.
func TestKernelsOfServe(t *testing.T) {
	foreign := ops.New()
	plain, linked := streams{}, streams{options: Options{Kernels: func(*slog.Logger) (graph.KernelSet, func(), error) {
		return foreign, func() {}, nil
	}}}
	for _, test := range []struct {
		name string
		s    streams
		want func(graph.KernelSet) bool
	}{
		{"auto", plain, func(k graph.KernelSet) bool { return k != nil && k.Name() == "go" }},
		{"go", plain, func(k graph.KernelSet) bool { return k != nil && k.Name() == "go" }},
		{"none", plain, func(k graph.KernelSet) bool { return k == nil }},
		{"auto", linked, func(k graph.KernelSet) bool { return k == foreign }},
		{"tensorflow", linked, func(k graph.KernelSet) bool { return k == foreign }},
		{"go", linked, func(k graph.KernelSet) bool { return k != foreign && k.Name() == "go" }},
		{"none", linked, func(k graph.KernelSet) bool { return k == nil }},
	} {
		if set, _, err := test.s.kernels(slog.Default(), test.name); err != nil || !test.want(set) {
			t.Errorf("%s: got %v, %v", test.name, set, err)
		}
	}
	if _, _, err := plain.kernels(slog.Default(), "tensorflow"); err == nil || !strings.Contains(err.Error(), "tryst-tensorflow") {
		t.Error(err)
	}
}
