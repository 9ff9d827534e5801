//go:build linux

package storm_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/internal/transporttest"
)

// storm is one run: processes, steps and faults.
type storm struct {
	t *testing.T
	options
	dir       string
	model     string
	cluster   map[int]string
	addresses [tasks][]string        // of the proxy of a task
	proxies   []*transporttest.Proxy // by task
	log       *logFile
	work      sync.WaitGroup // goroutines that read from processes

	mu       sync.Mutex // guards the fields below
	lives    map[int]int
	targets  map[int]string    // where the tasks' processes listen
	refused  map[int]bool      // tasks whose proxy resets connections
	views    [tasks][tasks]int // at which of its addresses a task is in the cluster of another one, or absent
	places   [tasks]int        // at which of its addresses a task is
	members  map[int]*member
	open     map[int64]*openStep
	last     int64         // the last step
	changed  chan struct{} // has a value after a step has ended
	failures []string
}

// options are what a run depends on.
type options struct {
	seed     uint64
	time     time.Duration
	world    world
	fallback string
	faults   bool
	script   []act // the faults, and when they have been made the storm ends; nil: by chance
	steps    int64 // how many steps begin at most; 0: no limit
	plant    plant
	churn    bool // tasks leave clusters, move and come back
}

// openStep is a step that has begun and not ended.
type openStep struct {
	plan  plan
	tasks map[int]*taskShare
	gone  map[int]bool // tasks of which a life was in the step and has ended: their values never come
}

// taskShare is a task's share of a step.
type taskShare struct {
	life int // 0: it waits for the task's process
	done bool
	dead bool // the life has ended
}

// Limits of a run.
const (
	// maxOpen is how many steps are open at once, and stepPause the shortest time between two.
	maxOpen   = 10
	stepPause = 15 * time.Millisecond
	// drainTime is how long the steps that are open when all faults are repaired may take. A
	// receive may have to notice that its connection is dead, and then the peer timeout passes.
	drainTime = 60 * time.Second
	// plantedDrain is the same for a run with a planted mistake, in which they may never end.
	plantedDrain = 2 * time.Second
	// takesUp is the share of steps that a new life takes up after an earlier one.
	takesUp = 0.4
)

// newStorm starts all processes.
func newStorm(t *testing.T, dir string, o options) *storm {
	t.Helper()
	s := &storm{
		t: t, options: o, dir: dir, model: filepath.Join(dir, "model.safetensors"), cluster: make(map[int]string), lives: make(map[int]int),
		targets: make(map[int]string), refused: make(map[int]bool),
		members: make(map[int]*member), open: make(map[int64]*openStep), changed: make(chan struct{}, 1),
	}
	var err error
	if s.log, err = newLog(dir, master, 1); err != nil {
		t.Fatal(err)
	}
	if err := writeModel(s.model, o.seed); err != nil {
		t.Fatal(err)
	}
	for i := range tasks {
		s.proxies = append(s.proxies, transporttest.NewProxy(t))
		s.cluster[i] = s.proxies[i].Addr()
		s.addresses[i] = []string{s.proxies[i].Addr(), s.proxies[i].Listen(t)}
	}
	t.Cleanup(s.killAll)
	var starts sync.WaitGroup
	for task := range tasks {
		starts.Go(func() { s.restart(task) })
	}
	starts.Go(func() { s.restart(puller) })
	starts.Go(func() { s.restart(watcher) })
	starts.Wait()
	return s
}

// killAll ends what is left at the end of the test.
func (s *storm) killAll() {
	s.mu.Lock()
	for _, m := range s.members {
		m.leaves = true
		select {
		case <-m.exited: // its process id may be another's
		default:
			_ = syscall.Kill(-m.cmd.Process.Pid, syscall.SIGKILL)
		}
	}
	s.mu.Unlock()
	s.work.Wait()
	s.log.f.Close()
}

func (s *storm) fail(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failLocked(format, args...)
}

func (s *storm) failLocked(format string, args ...any) {
	s.failures = append(s.failures, fmt.Sprintf(format, args...))
}

func (s *storm) failed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.failures) > 0
}

// isUp is called when a process is up: it gets the steps that wait for it, and some of those of
// the life before.
func (s *storm) isUp(m *member, address string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m.leaves {
		return
	}
	if m.task < tasks {
		s.targets[m.task] = address
		s.targetLocked(m.task)
	}
	m.isUp = true
	if m.task < tasks && !maps.Equal(m.view, s.viewLocked(m.task)) { // it has changed meanwhile
		s.tellViewLocked(m)
	}
	s.log.write(record{Kind: kindUp, Task: m.task, Life: m.life})
	close(m.up)
	for _, id := range slices.Sorted(maps.Keys(s.open)) {
		st := s.open[id]
		sh := st.tasks[m.task]
		switch {
		case sh == nil:
		case sh.life == 0:
			s.giveLocked(id, st, m, false)
		case sh.dead && rand.Float64() < takesUp:
			s.giveLocked(id, st, m, true)
		}
	}
}

// giveLocked gives a step to a process.
func (s *storm) giveLocked(id int64, st *openStep, m *member, again bool) {
	st.tasks[m.task] = &taskShare{life: m.life}
	s.tellLocked(m, command{Op: opStep, Step: id, Again: again})
	for task := range st.gone {
		if task != m.task {
			s.tellLocked(m, command{Op: opGone, Step: id, Peer: task})
		}
	}
}

// dead ends the share of a task in all steps that its process was in. The caller holds the lock.
func (s *storm) dead(task int) {
	for id, st := range s.open {
		sh := st.tasks[task]
		if sh == nil || sh.life == 0 || sh.dead {
			continue
		}
		sh.dead, st.gone[task] = true, true
		for other, o := range st.tasks {
			if m := s.members[other]; other != task && m.isUp && o.life == m.life {
				s.tellLocked(m, command{Op: opGone, Step: id, Peer: task})
			}
		}
		s.closeLocked(id, st)
	}
}

// isDone is called when a process has done its part of a step.
func (s *storm) isDone(m *member, id int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.open[id]
	if st == nil {
		return
	}
	if sh := st.tasks[m.task]; sh.life == m.life && !sh.dead {
		sh.done = true
		s.closeLocked(id, st)
	}
}

// closeLocked ends a step when every process in it is done or dead.
func (s *storm) closeLocked(id int64, st *openStep) {
	for _, sh := range st.tasks {
		if !sh.done && !sh.dead {
			return
		}
	}
	s.log.write(record{Kind: kindClose, Step: id})
	for task, sh := range st.tasks {
		if m := s.members[task]; m.isUp && sh.life == m.life {
			s.tellLocked(m, command{Op: opEnd, Step: id})
		}
	}
	delete(s.open, id)
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// enoughLocked reports whether as many steps have begun as are wanted.
func (s *storm) enoughLocked() bool { return s.steps != 0 && s.last >= s.steps }

func (s *storm) enough() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.enoughLocked()
}

// begin begins a step, unless enough are open.
func (s *storm) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.open) >= maxOpen || s.enoughLocked() {
		return
	}
	s.last++
	st := &openStep{plan: planOf(s.seed, s.last), tasks: make(map[int]*taskShare), gone: make(map[int]bool)}
	s.open[s.last] = st
	for task := range tasks {
		if st.plan.has(task) {
			st.tasks[task] = &taskShare{}
		}
	}
	for task := range st.tasks {
		if m := s.members[task]; m.isUp {
			s.giveLocked(s.last, st, m, false)
		}
	}
}

// run lets steps begin and faults happen for the time of the storm. Then all is repaired, and
// what is open must end. The last failures are of processes that stop.
func (s *storm) run() {
	ctx, cancel := context.WithTimeout(s.t.Context(), s.time)
	defer cancel()
	var faults sync.WaitGroup
	if s.churn {
		faults.Go(func() { s.changeClusters(ctx) })
	}
	switch {
	case s.script != nil:
		faults.Go(func() { defer cancel(); s.play(ctx) })
	case s.faults:
		faults.Go(func() { s.makeFaults(ctx) })
	}
	for tick := time.NewTicker(stepPause); ctx.Err() == nil && !s.failed() && !s.enough(); {
		select {
		case <-tick.C:
			s.begin()
		case <-ctx.Done():
			tick.Stop()
		}
	}
	cancel()
	faults.Wait()
	since := time.Now()
	s.drain()
	s.t.Logf("after all was repaired, open steps ended within %v", time.Since(since).Round(time.Millisecond))
	if !s.failed() {
		s.settle()
	}
	s.log.write(record{Kind: kindOver})
	if !s.failed() {
		s.untilIdle()
	}
	s.stopIfUp(puller)
	s.stopIfUp(watcher)
	for task := range tasks {
		s.stopIfUp(task)
	}
}

// stopIfUp stops the process of a task at the end of the run.
func (s *storm) stopIfUp(task int) {
	s.mu.Lock()
	up := s.members[task] != nil && s.members[task].isUp
	s.mu.Unlock()
	if up {
		s.stop(task, true)
	}
}

// drain waits until all steps have ended.
func (s *storm) drain() {
	limit := drainTime
	if s.plant != plantNone {
		limit = plantedDrain
	}
	late := time.After(limit)
	for {
		s.mu.Lock()
		n := len(s.open)
		s.mu.Unlock()
		if n == 0 || s.failed() {
			return
		}
		select {
		case <-s.changed:
		case <-late:
			s.mu.Lock()
			defer s.mu.Unlock()
			var ids []string
			for id, st := range s.open {
				for task, sh := range st.tasks {
					if !sh.done && !sh.dead {
						ids = append(ids, fmt.Sprintf("step %d in task %d", id, task))
					}
				}
			}
			slices.Sort(ids)
			s.failLocked("%v after all faults were repaired these have not ended: %s", limit, strings.Join(ids, ", "))
			return
		}
	}
}
