//go:build linux

package storm_test

import (
	"context"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/server"
	"github.com/tryst-rdma/tryst/verbs/shm"
)

// Faults in a given order, which every run of the tests has. A storm has them by chance.

// act is a part of a script: a fault of one task, or of all tasks at once. Then the script waits until
// a value that was received after it came over a route.
type act struct {
	fault string
	task  int // allTasks for all
	d     time.Duration
	until string // a device, or grpc; "": does not wait
}

const allTasks = -1

// scriptTime bounds a script, on a busy machine.
const scriptTime = 2 * time.Minute

func faultNamed(name string) (f fault, ok bool) {
	for _, f := range faults {
		if f.name == name {
			return f, true
		}
	}
	return fault{}, false
}

// play makes the faults of the script one after the other. Then the storm ends.
func (s *storm) play(ctx context.Context) {
	number := int64(0)
	for _, a := range s.script {
		if a.fault != "" {
			f, ok := faultNamed(a.fault)
			if !ok {
				s.fail("there is no fault %q", a.fault)
				return
			}
			for task := range tasks {
				if a.task == allTasks || a.task == task {
					number++
					s.make(ctx, f, number, task, a.d, 0)
				}
			}
		}
		if a.until != "" && !s.carried(ctx, a.until, now()) {
			s.fail("after %q of task %d nothing came over %s", a.fault, a.task, a.until)
			return
		}
	}
}

// carried waits until a value came over a route whose receive began at a time or later.
func (s *storm) carried(ctx context.Context, route string, since int64) bool {
	for pause(ctx, 100*time.Millisecond) && !s.failed() {
		all, err := readLogs(s.dir)
		if err != nil {
			continue // a line is being written
		}
		type id struct {
			task, life int
			recv       int64
		}
		began := make(map[id]bool)
		for _, r := range all {
			switch {
			case r.Kind == kindRecv && r.At >= since:
				began[id{r.Task, r.Life, r.Recv}] = true
			case r.Kind == kindGot && r.Route == route && began[id{r.Task, r.Life, r.Recv}]:
				return true
			}
		}
	}
	return false
}

// TestProcessesDieAndStop: over each provider, processes are killed, stopped and restarted
// while values move, and the rules hold.
func TestProcessesDieAndStop(t *testing.T) {
	const short = 300 * time.Millisecond
	for _, w := range worlds {
		if len(w.providers) != 1 || testing.Short() && w.providers[0] == server.ProviderRoCE { // storms have roce alone, too
			continue
		}
		w.same = true
		route := w.carry[0]
		t.Run(w.name, func(t *testing.T) {
			runStorm(t, logDir(t, t.Name()), options{seed: 3, time: scriptTime, world: w, fallback: "grpc", faults: true, script: []act{
				{until: route},
				{fault: "killed", task: 0, d: short},
				{fault: "stopped by SIGSTOP", task: 1, d: 2 * short},
				{fault: "stopped by SIGSTOP and then killed", task: 2, d: 2 * short},
				{fault: "killed as soon as it is up, twice", task: 3},
				{fault: "asked to stop", task: 0, d: short, until: route},
			}})
		})
	}
}

// TestDescriptorsRunOut: a process has no descriptor free while values move, so that it can open no
// connection and no memfd. Its receives take another route or fail, and nothing is lost. Afterwards the
// device carries values again.
func TestDescriptorsRunOut(t *testing.T) {
	const d = 500 * time.Millisecond
	for _, w := range worlds {
		if len(w.providers) != 1 || w.providers[0] == server.ProviderRoCE { // roce opens nothing for a channel
			continue
		}
		w.same = true
		route := w.carry[0]
		t.Run(w.name, func(t *testing.T) {
			runStorm(t, logDir(t, t.Name()), options{seed: 5, time: scriptTime, world: w, fallback: "grpc", faults: true, script: []act{
				{until: route},
				{fault: "no descriptor left", task: 0, d: d, until: route},
				{fault: "no descriptor left", task: allTasks, d: d, until: route},
			}})
		})
	}
}

// TestRoutesComeAndGo: shared memory is taken away, then TCP too, and processes that start again have
// both. Values go over the best route that is left, and the rules hold.
func TestRoutesComeAndGo(t *testing.T) {
	w := world{name: "shm and tcp", providers: []string{server.ProviderSHM, server.ProviderTCP}, same: true}
	runStorm(t, logDir(t, t.Name()), options{seed: 4, time: scriptTime, world: w, fallback: "grpc", faults: true, script: []act{
		{until: shm.DeviceName},
		{fault: "shared memory taken away", task: allTasks, until: "tcp0"},
		{fault: "TCP of queue pairs refused", task: 0, d: 500 * time.Millisecond},
		{fault: "TCP of queue pairs cut", task: 1},
		{fault: "TCP of queue pairs cut", task: 2, until: routeGRPC},
		{fault: "killed", task: allTasks, until: shm.DeviceName},
	}})
}
