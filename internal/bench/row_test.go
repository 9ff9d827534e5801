package bench

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestRowFields: the names are a contract with who reads the files.
func TestRowFields(t *testing.T) {
	b, err := json.Marshal(Row{})
	if err != nil {
		t.Fatal(err)
	}
	var object map[string]any
	if err := json.Unmarshal(b, &object); err != nil {
		t.Fatal(err)
	}
	want := strings.Fields(`allocs_per_op baseline better count gbytes_per_second inflight load name ok p50_us p90_us p99_us processor provider
		ratio ratio_q1 ratio_q3 seconds size target transport`)
	if got := slices.Sorted(maps.Keys(object)); !slices.Equal(got, want) {
		t.Errorf("fields %v, want %v", got, want)
	}
}

func TestRowOf(t *testing.T) {
	o := outcome{run: run{count: 4, time: 2 * time.Second}, ratio: spread{1, 2, 3}, allocs: 5}
	o.latencies.add(40*time.Nanosecond, 4)
	r := rowOf("recv", &o)
	r.moved(1e9)
	want := Row{
		Name: "recv", Size: 1e9, Count: 4, Seconds: 2, GBytesPerSecond: 2, P50: 0.04, P90: 0.04, P99: 0.04, AllocsPerOp: 5,
		Baseline: None, Ratio: 2, RatioQ1: 1, RatioQ3: 3, Better: Higher, OK: true,
	}
	if r != want {
		t.Errorf("row %+v, want %+v", r, want)
	}
}

func TestJudge(t *testing.T) {
	for _, c := range []struct {
		ratio             float64
		better            Better
		target, deviation float64
		ok, noise         bool
	}{
		{0.90, Higher, 0.90, 0, true, false},
		{0.89, Higher, 0.90, 0, false, false},
		{0.86, Higher, 0.90, 0.05, true, true},
		{0.85, Higher, 0.90, 0.05, false, false},
		{4, Lower, 4, 0, true, false},
		{4.1, Lower, 4, 0.03, true, true},
		{4.2, Lower, 4, 0.03, false, false},
		{0.1, Higher, 0, 0, true, false}, // no target
	} {
		r := Row{Ratio: c.ratio, OK: true}
		r.judge(c.better, c.target, c.deviation)
		if r.OK != c.ok || r.noise != c.noise {
			t.Errorf("%+v: ok %v, noise %v", c, r.OK, r.noise)
		}
	}
}

func TestMissed(t *testing.T) {
	rows := []Row{
		{Name: "recv", Size: 1 << 20, Inflight: 4, Baseline: PassThrough, Ratio: 0.5, Better: Higher, Target: 0.9},
		{Name: "local-match", Baseline: LockedMap, Ratio: 2, Better: Lower, Target: 4, AllocsPerOp: 3},
		{Name: "recv-whole", Size: 5 << 30, Inflight: 1},
		{Name: "noise", Ratio: 0.89, Target: 0.9, OK: true, noise: true},
	}
	err := Missed(rows)
	var all interface{ Unwrap() []error }
	if !errors.As(err, &all) || len(all.Unwrap()) != 3 {
		t.Fatalf("missed %v, want three", err)
	}
	for i, text := range []string{
		"recv, 1MiB, 4 in flight: 0.50 of grpc-passthrough, the target is >= 0.90",
		"3.0 allocations an operation",
		"recv-whole, 5GiB, 1 in flight: the outcome is wrong",
	} {
		if got := all.Unwrap()[i].Error(); !strings.Contains(got, text) {
			t.Errorf("missed %q, want %q", got, text)
		}
	}
	if err := Missed(rows[3:]); err != nil {
		t.Errorf("noise is missed: %v", err)
	}
}

func TestSave(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "build", "bench")
	rows := []Row{{Name: "a", file: "grpc", Better: Higher}, {Name: "b", file: "local"}, {Name: "c", file: "grpc", OK: true}}
	for range 2 { // the second replaces the first
		if _, err := Save(dir, rows); err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(filepath.Join(dir, "grpc.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.Split(bytes.TrimSpace(b), []byte("\n"))
	var r Row
	if len(lines) != 2 || json.Unmarshal(lines[1], &r) != nil || r.Name != "c" || !r.OK {
		t.Errorf("grpc.jsonl is %s", b)
	}
	if _, err := os.Stat(filepath.Join(dir, "local.jsonl")); err != nil {
		t.Error(err)
	}
	if _, err := Save(filepath.Join(dir, "grpc.jsonl"), rows); err == nil {
		t.Error("a file in place of the directory is no error")
	}
}

func TestTable(t *testing.T) {
	var b strings.Builder
	err := WriteTable(&b, []Row{
		{Name: "recv", Baseline: PassThrough, Size: 1 << 20, Count: 10, Seconds: 2, P50: 250, P90: 1200, P99: 2500, Ratio: 1, OK: true, itself: true},
		{Name: "recv", Transport: "grpc", Baseline: PassThrough, Size: 1000, Ratio: 0.85, RatioQ1: 0.8, RatioQ3: 1, Better: Higher, Target: 0.9, OK: true, noise: true},
		{Name: "recv", Transport: "grpc", Baseline: PassThrough, Ratio: 0.5, Better: Higher, Target: 0.9},
		{Name: "local-match", Transport: local, Baseline: LockedMap, P50: 0.05, P99: 2e6, Ratio: 3, Better: Lower, Target: 4, OK: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	for i, words := range [][]string{
		{"name", "beside", "quartiles"},
		{PassThrough, "1MiB", " 5 ", "250 µs", "1.2 ms", "2.5 ms", "itself"},
		{"grpc", "1000B", "0.85", "0.80 to 1.00", ">= 0.90", "noise"},
		{"MISSED"},
		{"local", LockedMap, "50 ns", "2.00 s", "<= 4.00", "ok"},
	} {
		for _, w := range words {
			if !strings.Contains(lines[i], w) {
				t.Errorf("line %d has no %q: %s", i, w, lines[i])
			}
		}
	}
}

// TestResults: pictures need files, and a program that draws.
func TestResults(t *testing.T) {
	rows := []Row{{Name: "a", file: "grpc", Better: Higher}}
	if err := (Results{}).Save(t.Context(), rows); err != nil {
		t.Error(err)
	}
	if (Results{Plot: true}).Validate() == nil {
		t.Error("pictures without files are taken")
	}
	t.Setenv("PATH", t.TempDir())
	r := Results{Dir: t.TempDir(), Plot: true}
	if err := r.Save(t.Context(), rows); err == nil || r.Validate() != nil || !strings.Contains(err.Error(), "make build/tryst-plot") {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(r.Dir, "grpc.jsonl")); err != nil {
		t.Error(err)
	}
}
