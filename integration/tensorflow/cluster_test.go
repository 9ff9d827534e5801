//go:build interop

package tensorflow_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tryst-rdma/tryst/internal/transporttest"
	"github.com/tryst-rdma/tryst/server"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor/tensortest"
	"github.com/tryst-rdma/tryst/tensorflow/library"
)

// tasks is the addresses of the tasks of a cluster by job.
type tasks map[string][]string

// newCluster returns a cluster whose tasks have addresses of their own: jobs is pairs of a job and
// its number of tasks.
func newCluster(t testing.TB, jobs map[string]int) tasks {
	t.Helper()
	n := 0
	for _, of := range jobs {
		n += of
	}
	c, free := tasks{}, transporttest.FreeAddresses(t, n)
	for job, of := range jobs {
		c[job], free = free[:of:of], free[of:]
	}
	return c
}

// startBoth starts a chief, a TensorFlow task of the job tf, and a Tryst task for each kernel set.
func startBoth(t testing.TB) (chief *python) {
	t.Helper()
	jobs := map[string]int{"chief": 1, "tf": 1}
	for _, set := range sets {
		jobs[set] = 1
	}
	c := newCluster(t, jobs)
	tf := c.beginTask(t, "tf", 0)
	chief = c.beginTask(t, "chief", 0)
	for _, set := range sets {
		c.startTryst(t, serverTask{Job: set, Kernels: set})
	}
	tf.ready()
	return chief.ready()
}

// python is a TensorFlow task in a process of its own, which also runs the programs of programs.py
// as a client of its own master.
type python struct {
	*process
	t testing.TB
	// lines has what the process prints; "" at its end.
	lines chan string
}

// startTask starts TensorFlow's server for a task.
func (c tasks) startTask(t testing.TB, job string, task int) *python {
	t.Helper()
	return c.beginTask(t, job, task).ready()
}

// beginTask is startTask for several tasks that start at the same time: ready waits for the server.
func (c tasks) beginTask(t testing.TB, job string, task int) *python {
	t.Helper()
	spec, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	p := &python{process: startPython(t, "driver.py", string(spec), job, fmt.Sprint(task)), t: t, lines: make(chan string, 16)}
	go func() {
		defer close(p.lines)
		for {
			line, err := p.stdout.ReadString('\n')
			if err != nil {
				return
			}
			p.lines <- strings.TrimSpace(line)
		}
	}()
	return p
}

// ready waits until TensorFlow's server listens.
func (p *python) ready() *python {
	p.t.Helper()
	if line := p.line("the start of TensorFlow"); line != "ready" {
		p.t.Fatalf("driver.py printed %q, want ready", line)
	}
	return p
}

// in returns the process for a subtest.
func (p *python) in(t testing.TB) *python {
	sub := *p
	sub.t = t
	return &sub
}

func (p *python) line(what string) string {
	p.t.Helper()
	return await(p.t, p.lines, what)
}

// args is the arguments of a program.
type args map[string]any

// result is what a program returns, or the error of TensorFlow with which it ends.
type result struct {
	Value   any
	Code    status.Code
	Message string
	Fault   string
}

// begin begins a program. The test goes on with event or result.
func (p *python) begin(program string, a args) {
	p.t.Helper()
	request, err := json.Marshal(map[string]any{"program": program, "args": a})
	if err != nil {
		p.t.Fatal(err)
	}
	p.reply(string(request))
}

// event waits for an event of the program.
func (p *python) event(name string) {
	p.t.Helper()
	if line := p.line(name); line != "event "+name {
		p.t.Fatalf("driver.py printed %q, want the event %s", line, name)
	}
}

// reply sends a line to the program.
func (p *python) reply(line string) {
	p.t.Helper()
	if _, err := fmt.Fprintln(p.stdin, line); err != nil {
		p.t.Fatalf("driver.py: %v", err)
	}
}

// result waits for the end of the program.
func (p *python) result() (r result) {
	p.t.Helper()
	line := p.line("the result of a program")
	if err := json.Unmarshal([]byte(line), &r); err != nil {
		p.t.Fatalf("driver.py printed %q, want a result: %v", line, err)
	}
	if r.Fault != "" {
		p.t.Fatalf("the program failed: %s", r.Fault)
	}
	return r
}

// run runs a program to its end.
func (p *python) run(program string, a args) result {
	p.t.Helper()
	p.begin(program, a)
	return p.result()
}

// value runs a program, which must succeed, and returns its value.
func (p *python) value(program string, a args) any {
	p.t.Helper()
	r := p.run(program, a)
	if r.Code != status.OK {
		p.t.Fatalf("%s of %v: %v: %s", program, a, r.Code, r.Message)
	}
	return r.Value
}

// trystTask is a Tryst server as a task of a cluster, in the process of the test.
type trystTask struct {
	*server.Server
	registry *prometheus.Registry
}

// startTryst starts a Tryst server for a task. It ends with the test.
func (c tasks) startTryst(t testing.TB, task serverTask, change ...func(*server.Config)) *trystTask {
	t.Helper()
	task.Cluster = c
	s := &trystTask{registry: prometheus.NewRegistry()}
	conf := task.settings()
	for _, f := range change {
		f(&conf)
	}
	k, err := task.kernels()
	if err != nil {
		t.Fatal(err)
	}
	if set, ok := k.(*library.Set); ok {
		t.Cleanup(set.Close) // of its process
	}
	if s.Server, err = server.Start(t.Context(), conf, server.Options{Allocator: tensortest.NewAllocator(t), Registerer: s.registry, Kernels: k}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(context.Background()); err != nil {
			t.Errorf("server: Close: %v", err)
		}
	})
	return s
}
