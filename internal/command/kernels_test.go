package command

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tryst-rdma/tryst/internal/config"
	"github.com/tryst-rdma/tryst/internal/config/sources"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
	"github.com/tryst-rdma/tryst/tensorflow/ops"
)

// TestKernelsOfServe: the setting chooses the kernels of the command, those in Go, or none. A command
// without TensorFlow's library names the one that has it.
func TestKernelsOfServe(t *testing.T) {
	foreign := ops.New()
	plain, linked := streams{}, streams{options: Options{Kernels: func(*slog.Logger, []string) (graph.KernelSet, func(), error) {
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
		if set, _, err := test.s.kernels(slog.Default(), test.name, nil); err != nil || !test.want(set) {
			t.Errorf("%s: got %v, %v", test.name, set, err)
		}
	}
	if _, _, err := plain.kernels(slog.Default(), "tensorflow", nil); err == nil || !strings.Contains(err.Error(), "tryst-tensorflow") {
		t.Error(err)
	}
}

// TestListeningOfServe: the command checks the address before anything is accepted, unless the graphs
// run with the kernels in Go, or there are none. An error ends serve.
func TestListeningOfServe(t *testing.T) {
	var got net.Addr
	o := Options{
		Kernels: func(*slog.Logger, []string) (graph.KernelSet, func(), error) { return ops.New(), func() {}, nil },
		Listening: func(a net.Addr, mutualTLS bool) error {
			got = a
			return fmt.Errorf("not here, mutual TLS %v", mutualTLS)
		},
	}
	var log bytes.Buffer
	code := run(t.Context(), streams{out: io.Discard, err: &log, env: []string{}, options: o}, []string{"serve", "--listen", "127.0.0.1:0"})
	if code == exitDone || got == nil || !strings.Contains(log.String(), "not here, mutual TLS false") {
		t.Errorf("exit status %d at %v: %s", code, got, log.String())
	}
	for _, kernels := range []string{config.KernelsGo, config.KernelsNone} {
		if (streams{options: o}).listening(&sources.Loaded{Own: config.Own{Kernels: kernels}}) != nil {
			t.Errorf("the address is checked although the kernels are %s", kernels)
		}
	}
	mutual := &sources.Loaded{Own: config.Own{Kernels: config.KernelsTensorFlow}}
	mutual.TLS.RequireClientCert = true
	if err := (streams{options: o}).listening(mutual)(got); !strings.Contains(err.Error(), "mutual TLS true") {
		t.Error(err)
	}
}

// TestFilesOfServe: the kernels of the command get the directories of --tensorflow-files, those in Go and others. One that does
// not exist ends serve.
func TestFilesOfServe(t *testing.T) {
	dir := t.TempDir()
	var log bytes.Buffer
	serve := func(o Options, args ...string) int {
		log.Reset()
		return run(t.Context(), streams{out: io.Discard, err: &log, env: []string{}, options: o}, append([]string{"serve", "--listen", "127.0.0.1:0"}, args...))
	}
	missing := filepath.Join(dir, "missing")
	if code := serve(Options{}, "--tensorflow-files", dir, "--tensorflow-files", missing); code == exitDone || !strings.Contains(log.String(), missing) || !strings.Contains(log.String(), "make the directory first") {
		t.Errorf("exit status %d: %s", code, log.String())
	}
	var got []string
	o := Options{Kernels: func(_ *slog.Logger, files []string) (graph.KernelSet, func(), error) {
		got = files
		return nil, nil, errors.New("not now")
	}}
	if serve(o, "--tensorflow-files", dir, "--tensorflow-files", missing); !slices.Equal(got, []string{dir, missing}) {
		t.Errorf("the kernels got %q: %s", got, log.String())
	}
	set, _, err := streams{}.kernels(slog.New(slog.NewTextHandler(&log, nil)), config.KernelsGo, []string{dir})
	if err != nil || set == nil || !strings.Contains(log.String(), "graphs may save and restore checkpoints") {
		t.Errorf("%v, %v: %s", set, err, log.String())
	}
}
