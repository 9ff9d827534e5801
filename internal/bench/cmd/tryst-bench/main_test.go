package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"go.uber.org/goleak"

	"github.com/tryst-rdma/tryst/internal/bench"
	"github.com/tryst-rdma/tryst/server"
	"github.com/tryst-rdma/tryst/tensor"
)

// asCommand is the variable that makes the test binary the command.
const asCommand = "TRYST_BENCH_TEST_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		main()
		return
	}
	goleak.VerifyTestMain(m)
}

// command runs a command line in this process, with nothing in its environment. A
// second process is the test binary.
func command(t *testing.T, args ...string) (code int, out, errs string) {
	t.Helper()
	t.Setenv(asCommand, "1")
	var o, e bytes.Buffer
	code = run(t.Context(), streams{in: strings.NewReader(""), out: &o, err: &e, env: []string{}}, args)
	return code, o.String(), e.String()
}

// TestBench measures against a second process.
func TestBench(t *testing.T) {
	dir := t.TempDir()
	code, out, errs := command(t, "--only", "recv,local-match", "--size", "8,4KiB", "--inflight", "2",
		"--pairs", "1", "--pair-time", "1ms", "--json", "--json-dir", dir)
	if code != exitDone {
		t.Fatalf("exit status %d\n%s", code, errs)
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) != 2+2*3*2 {
		t.Errorf("%d rows:\n%s", len(lines), out)
	}
	for _, line := range lines {
		var row bench.Row
		if err := json.Unmarshal([]byte(line), &row); err != nil || row.Count == 0 || row.Baseline == "" {
			t.Errorf("row %s: %v", line, err)
		}
	}
	if !strings.Contains(errs, "bench: recv: 4KiB, 2 in flight, beside grpc-passthrough\n") {
		t.Errorf("progress:\n%s", errs)
	}
	var saved []byte
	for _, name := range []string{"local.jsonl", "grpc.jsonl"} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		saved = append(saved, b...)
	}
	if string(saved) != out {
		t.Errorf("saved is\n%s\nnot\n%s", saved, out)
	}
}

func TestBenchFromAServer(t *testing.T) {
	c := server.Config{}
	c.Listen = "127.0.0.1:0"
	s, err := server.Start(t.Context(), c, server.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	shape, err := tensor.NewShape(1000)
	if err != nil {
		t.Fatal(err)
	}
	x, err := tensor.Allocate(tensor.Heap{}, tensor.Uint8, shape)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Catalog().PublishTensors(t.Context(), "any", x.Named("x")); err != nil {
		t.Fatal(err)
	}
	x.Release()
	code, out, errs := command(t, "--from", s.Addr().String(), "--size", "64KiB", "--pairs", "1", "--pair-time", "1ms")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if code != exitDone || len(lines) < 3 || !strings.Contains(lines[1], "1000B") {
		t.Errorf("exit status %d\n%s%s", code, out, errs)
	}
}

func TestWrongUsage(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"--size 1MB", `--size "1MB": want a whole number of bytes`},
		{"--inflight x", "--inflight"},
		{"--inflight 0", "0 receives in flight"},
		{"--pairs 0", "--pairs 0: at least 1"},
		{"--pair-time 0s", "--pair-time 0s"},
		{"--only recieve", `unknown benchmark "recieve"; want one of `},
		{"--transport grpc,pigeon", `unknown transport "pigeon"; want one of grpc, verbs`},
		{"--transport pigeon", `--transport "pigeon"`},
		{"--from 2222", "--from"},
		{"--from 127.0.0.1:1 --only local-match", "only recv"},
		{"--plot", "set --json-dir"},
		{"more", `"more"`},
		{"peer x", `"peer"`},
	} {
		code, out, errs := command(t, strings.Fields(c.args)...)
		if code != exitUsage || out != "" || !strings.HasPrefix(errs, "tryst-bench: ") || !strings.Contains(errs, c.want) || !strings.HasSuffix(errs, "See 'tryst-bench --help'.\n") {
			t.Errorf("%s: exit status %d, want %d and %q\n%s%s", c.args, code, exitUsage, c.want, out, errs)
		}
	}
}

// TestAllWrongFlagsAtOnce: each has a line of its own.
func TestAllWrongFlagsAtOnce(t *testing.T) {
	code, _, errs := command(t, strings.Fields("--size 1MB --size x --pairs 0 --pair-time 0s --poll loud")...)
	if code != exitUsage || strings.Count(errs, "tryst-bench: ") != 5 {
		t.Errorf("exit status %d, want 5 lines:\n%s", code, errs)
	}
	for _, want := range []string{`--size "1MB"`, `--size "x"`, "--pairs 0", "--pair-time 0s", `--poll "loud"`} {
		if !strings.Contains(errs, want) {
			t.Errorf("no %q in\n%s", want, errs)
		}
	}
}

// TestFailuresAreOneLineEach, with exit status 1.
func TestFailuresAreOneLineEach(t *testing.T) {
	code, out, errs := command(t, peerCommand) // its input ends at once
	if code != exitFailed || out != "" || strings.Count(errs, "\n") != 1 || !strings.Contains(errs, "its input is no setup") {
		t.Errorf("exit status %d\n%s%s", code, out, errs)
	}
}

func TestHelpNamesEachBenchmarkAndTheSettings(t *testing.T) {
	code, out, errs := command(t, "--help")
	if code != exitDone || errs != "" {
		t.Errorf("exit status %d\n%s", code, errs)
	}
	for _, want := range append(bench.Names(), "--inflight N,...", "--check", "--transport TRANSPORT,...", "--tls-ca") {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in the help:\n%s", want, out)
		}
	}
}

// TestSeveralTransports: a list in --transport is which transports are compared, and the settings are
// those of the one that has the most.
func TestSeveralTransports(t *testing.T) {
	for _, c := range []struct {
		given, one string
		transports []string
	}{
		{"", "grpc", nil},
		{"verbs", "verbs", nil},
		{"grpc,verbs", "verbs", []string{"grpc", "verbs"}},
		{"verbs,grpc", "verbs", []string{"verbs", "grpc"}},
		{"grpc,pigeon", "grpc", []string{"grpc", "pigeon"}}, // refused later
	} {
		flags := pflag.NewFlagSet("bench", pflag.ContinueOnError)
		flags.String(transportFlag, "grpc", "")
		if c.given != "" {
			if err := flags.Set(transportFlag, c.given); err != nil {
				t.Fatal(err)
			}
		}
		if transports := severalTransports(flags); !slices.Equal(transports, c.transports) || flags.Lookup(transportFlag).Value.String() != c.one {
			t.Errorf("--transport %s: transports %q, settings of %s; want %q, %s", c.given, transports, flags.Lookup(transportFlag).Value, c.transports, c.one)
		}
	}
}

// TestBenchRefusesFlagsThatItIgnores: it neither traces nor logs.
func TestBenchRefusesFlagsThatItIgnores(t *testing.T) {
	for _, flag := range []string{"--otel-endpoint=127.0.0.1:1", "--otel-sample-ratio=1", "--log-level=debug", "--log-format=json"} {
		code, _, errs := command(t, "--only", "local-match", "--pair-time", "1ms", flag)
		if name, _, _ := strings.Cut(flag, "="); code != exitUsage || !strings.Contains(errs, "unknown flag: "+name) {
			t.Errorf("%s: exit status %d\n%s", flag, code, errs)
		}
	}
}

// TestAnInterruptedRunKeepsItsRows: what was measured before is in the files, and drawn.
func TestAnInterruptedRunKeepsItsRows(t *testing.T) {
	dir, bin := t.TempDir(), t.TempDir()
	script := "#!/bin/sh\nshift\nfor f; do : >\"${f%.jsonl}.svg\"; done\n"
	if err := os.WriteFile(filepath.Join(bin, "tryst-plot"), []byte(script), 0o755); err != nil { //nolint:gosec // it is run
		t.Fatal(err)
	}
	t.Setenv("PATH", bin)
	t.Setenv(asCommand, "1")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	s := streams{in: strings.NewReader(""), out: new(bytes.Buffer), err: writer(func(text string) {
		if strings.Contains(text, "recv: ") {
			stop()
		}
	}), env: []string{}}
	if code := run(ctx, s, strings.Fields("--only local-match,recv --size 8 --inflight 1 --pairs 1 --pair-time 1ms --plot --json-dir "+dir)); code != exitFailed {
		t.Errorf("exit status %d", code)
	}
	text, err := os.ReadFile(filepath.Join(dir, "local.jsonl"))
	if err != nil || !strings.Contains(string(text), "local-match") || strings.Contains(string(text), "recv") {
		t.Errorf("%v: %s", err, text)
	}
	if _, err := os.Stat(filepath.Join(dir, "local.svg")); err != nil {
		t.Error(err)
	}
}

// writer calls a function with what is written.
type writer func(text string)

func (w writer) Write(p []byte) (int, error) {
	w(string(p))
	return len(p), nil
}
