package command

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tryst-rdma/tryst/internal/config"
	"github.com/tryst-rdma/tryst/internal/config/sources"
	"github.com/tryst-rdma/tryst/status"
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

// TestListeningBeyondLoopback: without mutual TLS serve starts beyond loopback only when a flag says that everybody may
// run graphs. Graphs that reach nothing but memory are no reason.
func TestListeningBeyondLoopback(t *testing.T) {
	foreign := Options{Kernels: func(*slog.Logger, []string) (graph.KernelSet, func(), error) { return ops.New(), func() {}, nil }}
	for _, tt := range []struct {
		ip                string
		mutualTLS, anyone bool
		ok                bool
	}{
		{"127.0.0.1", false, false, true},
		{"::1", false, false, true},
		{"0.0.0.0", false, false, false},
		{"::", false, false, false},
		{"10.0.0.1", false, false, false},
		{"0.0.0.0", true, false, true},
		{"0.0.0.0", false, true, true},
	} {
		for _, of := range []struct {
			name    string
			options Options
			kernels string
			files   []string
			checks  bool
			want    string
		}{
			{"kernels in Go", Options{}, config.KernelsGo, nil, false, ""},
			{"kernels in Go of another command", foreign, config.KernelsGo, nil, false, ""},
			{"no kernels", foreign, config.KernelsNone, []string{"/d"}, false, ""},
			{"checkpoints", Options{}, "", []string{"/d"}, true, `write files below ["/d"]`},
			{"checkpoints of another command", foreign, config.KernelsGo, []string{"/d"}, true, `write files below ["/d"]`},
			{"TensorFlow's kernels", foreign, config.KernelsTensorFlow, nil, true, "as the user of this process"},
		} {
			cfg := &sources.Loaded{Own: config.Own{Kernels: of.kernels}}
			cfg.TLS.RequireClientCert = tt.mutualTLS
			check := streams{options: of.options}.listening(cfg, graphs{files: of.files, anyone: tt.anyone})
			if (check != nil) != of.checks {
				t.Errorf("%s: the address is checked: %v", of.name, check != nil)
			}
			if check == nil {
				continue
			}
			err := check(&net.TCPAddr{IP: net.ParseIP(tt.ip), Port: 2222})
			switch {
			case tt.ok && err != nil:
				t.Errorf("%s, %+v: %v", of.name, tt, err)
			case !tt.ok && (status.CodeOf(err) != status.FailedPrecondition || !strings.Contains(err.Error(), "--allow-anyone-to-run-graphs") || !strings.Contains(err.Error(), "tls.require-client-cert") || !strings.Contains(err.Error(), of.want)):
				t.Errorf("%s, %+v: %v", of.name, tt, err)
			}
		}
	}
}

// TestServeChecksItsAddress before anything is accepted.
func TestServeChecksItsAddress(t *testing.T) {
	var log bytes.Buffer
	serve := func(args ...string) int {
		return run(t.Context(), streams{out: io.Discard, err: &log, env: []string{}}, append([]string{"serve", "--listen", "0.0.0.0:0"}, args...))
	}
	if code := serve("--tensorflow-files", t.TempDir()); code == exitDone || !strings.Contains(log.String(), "--allow-anyone-to-run-graphs") {
		t.Errorf("exit status %d: %s", code, log.String())
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
	if code := serve(Options{}, "--tensorflow-files", dir, "--kernels", config.KernelsNone); code == exitDone || !strings.Contains(log.String(), "runs no graphs") {
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
