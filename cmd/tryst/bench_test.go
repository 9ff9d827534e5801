package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/tryst-rdma/tryst/bench"
)

// TestBench measures against a second process, which is this binary.
func TestBench(t *testing.T) {
	t.Setenv(asCommand, "1")
	dir := t.TempDir()
	r := tryst(t, "bench", "--only", "recv,local-match", "--size", "8,4KiB", "--inflight", "2",
		"--pairs", "1", "--pair-time", "1ms", "--json", "--json-dir", dir)
	lines := strings.Split(strings.TrimSpace(did(t, r)), "\n")
	if len(lines) != 2+2*3*2 {
		t.Errorf("%d rows:\n%s", len(lines), r.out)
	}
	for _, line := range lines {
		var row bench.Row
		if err := json.Unmarshal([]byte(line), &row); err != nil || row.Count == 0 || row.Yardstick == "" {
			t.Errorf("row %s: %v", line, err)
		}
	}
	if !strings.Contains(r.err, "bench: recv: 4KiB, 2 in flight, beside grpc-passthrough\n") {
		t.Errorf("progress:\n%s", r.err)
	}
	var saved []byte
	for _, name := range []string{"local.jsonl", "grpc.jsonl"} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		saved = append(saved, b...)
	}
	if string(saved) != r.out {
		t.Errorf("saved is\n%s\nnot\n%s", saved, r.out)
	}
}

func TestBenchFromAServer(t *testing.T) {
	from := serve(t, "--publish", generate(t))
	table := did(t, tryst(t, "bench", "--from", from, "--size", "64KiB", "--pairs", "1", "--pair-time", "1ms"))
	if lines := strings.Split(strings.TrimSpace(table), "\n"); len(lines) != 3 || !strings.Contains(lines[1], "none") && !strings.Contains(lines[1], "grpc") {
		t.Errorf("table:\n%s", table)
	}
}

func TestBenchWrongUsage(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"--size 1MB", `--size "1MB": want a whole number of bytes`},
		{"--inflight x", "--inflight"},
		{"--inflight 0", "0 receives under way"},
		{"--pairs 0", "--pairs 0: at least 1"},
		{"--pair-time 0s", "--pair-time 0s"},
		{"--only recieve", `no benchmark "recieve"; there are`},
		{"--transport grpc,pigeon", `no transport "pigeon"; there is grpc, verbs`},
		{"--transport pigeon", `--transport "pigeon"`},
		{"--from nowhere", "--from"},
		{"--from 127.0.0.1:1 --only local-match", "only recv"},
		{"more", `"more"`},
	} {
		failed(t, tryst(t, append([]string{"bench"}, strings.Fields(c.args)...)...), exitUsage, c.want)
	}
	failed(t, tryst(t, "bench-peer", "x"), exitUsage, `"x"`)
}

func TestBenchPeerIsNotInHelp(t *testing.T) {
	if text := did(t, tryst(t, "--help")); strings.Contains(text, benchPeer) {
		t.Errorf("help:\n%s", text)
	}
}

// TestSeveralWires: a list in --transport is which wires are compared, and the settings are
// those of the one that has the most.
func TestSeveralWires(t *testing.T) {
	for _, c := range []struct {
		given, one string
		wires      []string
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
		if wires := severalWires(flags); !slices.Equal(wires, c.wires) || flags.Lookup(transportFlag).Value.String() != c.one {
			t.Errorf("--transport %s: wires %q, settings of %s; want %q, %s", c.given, wires, flags.Lookup(transportFlag).Value, c.wires, c.one)
		}
	}
}
