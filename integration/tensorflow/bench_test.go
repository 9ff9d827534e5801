//go:build interop

package tensorflow_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/tryst-rdma/tryst/internal/bench"
)

var (
	benchOut  = flag.String("bench-tensorflow", "", "measure steps with Tryst beside TensorFlow, and write the table to this file, and rows to tensorflow.jsonl beside it")
	benchPlot = flag.String("bench-plot", "", "draw these rows by the tryst-plot at this path")
)

// benchRows makes the rows of one measurement as internal/bench has them: the task of TensorFlow is the baseline.
func benchRows(t *testing.T, m measure, times, ratios map[string][]float64) (rows []bench.Row) {
	t.Helper()
	processor, load := bench.Machine()
	row := func(job string) bench.Row {
		return bench.Row{
			Name: m.name, Inflight: 1, Count: int64(m.steps * rounds), P50: 1e6 * median(times[job]),
			Baseline: "TensorFlow", Better: bench.Lower, Ratio: 1, OK: true, Load: load, Processor: processor,
		}
	}
	for i, set := range sets {
		target, err := strconv.ParseFloat(strings.Split(m.targets, ", ")[i], 64)
		if err != nil {
			t.Fatal(err)
		}
		sorted := slices.Sorted(slices.Values(ratios[set]))
		r := row(set)
		r.Transport, r.Ratio, r.Target = "kernels "+set, median(sorted), target
		r.RatioQ1, r.RatioQ3 = sorted[len(sorted)/4], sorted[len(sorted)*3/4]
		r.OK = r.Ratio <= target
		rows = append(rows, row("tf"), r)
	}
	return rows
}

// saveRows writes them beside the table, and draws them.
func saveRows(t *testing.T, rows []bench.Row) {
	t.Helper()
	path := filepath.Join(filepath.Dir(*benchOut), "tensorflow.jsonl")
	lines := &bytes.Buffer{}
	for _, r := range rows {
		if err := json.NewEncoder(lines).Encode(r); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(path, lines.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	if *benchPlot == "" {
		return
	}
	if out, err := exec.CommandContext(t.Context(), *benchPlot, path).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// measure is a kind of step of the program timed, and how much longer than with a task of TensorFlow
// it may take with a task of Tryst, for each of the sets.
type measure struct {
	name, kind string
	mib, ops   int
	steps      int
	targets    string
}

var measures = []measure{
	{"empty step", "empty", 0, 0, 400, "1.0, 1.0"},
	{"200 AddV2 in a chain", "chain", 0, 200, 200, "1.0, 1.0"},
	{"1,000 AddV2 in a chain", "chain", 0, 1000, 100, "1.0, 1.2"},
	{"500 tensors of 8 bytes to TensorFlow", "small", 0, 0, 40, "1.1, 1.1"},
	{"1 MiB to TensorFlow", "from", 1, 0, 100, "1.0, 1.0"},
	{"16 MiB to TensorFlow", "from", 16, 0, 30, "1.0, 1.0"},
	{"128 MiB to TensorFlow", "from", 128, 0, 6, "1.0, 1.0"},
	{"1 MiB from TensorFlow", "to", 1, 0, 100, "1.0, 1.0"},
	{"16 MiB from TensorFlow", "to", 16, 0, 30, "1.0, 1.0"},
	{"128 MiB from TensorFlow", "to", 128, 0, 6, "1.0, 1.0"},
	{"parameter server: pull and push 16 MiB, Adam", "ps", 16, 0, 20, "1.0, 1.0"},
	{"parameter server: pull and push 100 variables of 1 KiB, Adam", "variables", 0, 100, 50, "1.0, 1.2"},
}

// rounds is how often each measurement is made; all tasks take part in each round, one after
// another, so that what else the machine does hits them alike.
const rounds = 5

// TestBenchTensorFlow measures the steps of a TensorFlow client with a task of TensorFlow and with
// tasks of Tryst, side by side. make bench-tensorflow runs it; without its flag it measures each kind
// once, to check that it works.
func TestBenchTensorFlow(t *testing.T) {
	jobs := map[string]int{"chief": 1, "tf": 1}
	for _, set := range sets {
		jobs[set] = 1
	}
	c := newCluster(t, jobs)
	for _, set := range sets {
		c.startTrystProcess(t, serverTask{Job: set, Kernels: set})
	}
	c.startTask(t, "tf", 0)
	chief := c.startTask(t, "chief", 0)
	var rows []bench.Row
	table := &strings.Builder{}
	fmt.Fprintf(table, "| step | TensorFlow | %s | target |\n| --- | ---: | ---: | ---: | ---: |\n", strings.Join(sets, " | "))
	for _, m := range measures {
		if *benchOut == "" && m.mib <= 16 {
			m.steps = 1
			for _, job := range append([]string{"tf"}, sets...) {
				chief.timed(m, job)
			}
			continue
		}
		if *benchOut == "" {
			continue
		}
		// The medians of the rounds, and of the ratios to TensorFlow in the same round.
		times, ratios := map[string][]float64{}, map[string][]float64{}
		for range rounds {
			tf := chief.timed(m, "tf")
			times["tf"] = append(times["tf"], tf)
			for _, set := range sets {
				s := chief.timed(m, set)
				times[set], ratios[set] = append(times[set], s), append(ratios[set], s/tf)
			}
		}
		fmt.Fprintf(table, "| %s | %.3f ms |", m.name, 1e3*median(times["tf"]))
		for _, set := range sets {
			fmt.Fprintf(table, " %.3f ms, %.2f |", 1e3*median(times[set]), median(ratios[set]))
		}
		fmt.Fprintf(table, " %s |\n", m.targets)
		rows = append(rows, benchRows(t, m, times, ratios)...)
	}
	if *benchOut == "" {
		return
	}
	if err := os.WriteFile(*benchOut, []byte(table.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	fmt.Print(table)
	saveRows(t, rows)
}

// timed returns the median of the seconds of a step with a task of a job.
func (p *python) timed(m measure, job string) float64 {
	p.t.Helper()
	list, _ := p.value("timed", args{"on": "/job:" + job + "/task:0/device:CPU:0", "kind": m.kind, "mib": m.mib, "ops": m.ops, "steps": m.steps}).([]any)
	var times []float64
	for _, s := range list {
		seconds, ok := s.(float64)
		if !ok {
			p.t.Fatalf("%s: timed returned %v (%T) where seconds are wanted", m.kind, s, s)
		}
		times = append(times, seconds)
	}
	return median(times)
}

func median(xs []float64) float64 {
	s := slices.Sorted(slices.Values(xs))
	return s[len(s)/2]
}
