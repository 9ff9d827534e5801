//go:build linux

package storm_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/tryst-rdma/tryst/status"
)

// Changes of the cluster.
const (
	// churnPause is the mean pause between two changes, and maxChurn how many are under way at once.
	churnPause = 900 * time.Millisecond
	maxChurn   = 2
	// maxAway is the longest time that a task is away.
	maxAway = 1500 * time.Millisecond
	// maxClusters is how many clusters a process may have before it that it has not taken.
	maxClusters = 1000
	// absent is the place of a task that is not in a cluster.
	absent = -1
)

// changeClusters lets tasks leave the clusters of others, move and come back until ctx ends.
func (s *storm) changeClusters(ctx context.Context) {
	r := rand.New(rand.NewPCG(s.seed, 1<<40)) //nolint:gosec // reproducible, and no step's
	var work sync.WaitGroup
	defer work.Wait()
	slots := make(chan struct{}, maxChurn)
	var busy sync.Map
	for pause(ctx, time.Duration(r.ExpFloat64()*float64(churnPause))) && !s.failed() {
		task, kind, away := r.IntN(tasks), r.IntN(5), time.Duration(r.Int64N(int64(maxAway)))
		if _, is := busy.LoadOrStore(task, true); is {
			continue
		}
		slots <- struct{}{}
		work.Go(func() {
			defer func() { busy.Delete(task); <-slots }()
			switch kind {
			case 0, 1:
				s.move(task)
			case 2, 3:
				s.leave(ctx, task, false, away)
			default:
				s.leave(ctx, task, true, away)
			}
		})
	}
}

// move lets a task have its other address.
func (s *storm) move(task int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.places[task] = 1 - s.places[task]
	s.changeLocked(func() {
		for other := range tasks {
			if s.views[other][task] != absent {
				s.views[other][task] = s.places[task]
			}
		}
	})
}

// leave lets a task leave the clusters of the others for a while, and, if asked for, the others its own.
func (s *storm) leave(ctx context.Context, task int, all bool, d time.Duration) {
	set := func(here bool) {
		s.mu.Lock()
		defer s.mu.Unlock()
		at := func(other int) int {
			if here {
				return s.places[other]
			}
			return absent
		}
		s.changeLocked(func() {
			for other := range tasks {
				if other == task {
					continue
				}
				s.views[other][task] = at(task)
				if all {
					s.views[task][other] = at(other)
				}
			}
		})
	}
	set(false)
	pause(ctx, d)
	set(true)
}

// changeLocked makes a change of the clusters, and tells it those whose own has changed.
func (s *storm) changeLocked(do func()) {
	before := s.views
	do()
	for task := range tasks {
		if m := s.members[task]; m != nil && m.isUp && before[task] != s.views[task] {
			s.tellViewLocked(m)
		}
	}
}

func (s *storm) tellViewLocked(m *member) {
	m.view = s.viewLocked(m.task)
	s.tellLocked(m, command{Op: opCluster, Cluster: m.view})
}

// viewLocked is the cluster of a task. It is in it itself, where it began.
func (s *storm) viewLocked(task int) map[int]string {
	view := make(map[int]string)
	for other, at := range s.views[task] {
		if other == task {
			at = 0
		}
		if at != absent {
			view[other] = s.addresses[other][at]
		}
	}
	return view
}

// begins logs the cluster that this process has begun with, and takes others one after the other.
func (n *node) begins() {
	n.log.write(record{Kind: kindSet, Tasks: slices.Sorted(maps.Keys(n.View))})
	n.work.Go(func() {
		for {
			select {
			case c := <-n.clusters:
				n.setCluster(c.Cluster)
			case <-n.ctx.Done():
				return
			}
		}
	})
	n.publish()
}

// setCluster makes another cluster the present one.
func (n *node) setCluster(tasks map[int]string) {
	r := record{Kind: kindCluster, Tasks: slices.Sorted(maps.Keys(tasks))}
	list := make([]string, 0, len(tasks))
	for _, task := range r.Tasks {
		list = append(list, fmt.Sprintf("%d@%s", task, tasks[task]))
	}
	r.Text = fmt.Sprint(list)
	n.log.write(r)
	var err error
	if !n.staysAway(r) {
		err = n.server.SetCluster(n.ctx, map[string][]string{job: list})
	}
	r.Kind = kindSet
	if n.strikes(plantCluster) {
		r.Code = status.Internal.String()
	}
	if err != nil {
		r.Code, r.Text = status.CodeOf(err).String(), err.Error()
	}
	n.log.write(r)
}

// settle waits until no task makes versions any more and watchers have had time for the newest ones.
func (s *storm) settle() {
	var want []newest
	for _, a := range s.ask(command{Op: opStill}, s.tasksUp()) {
		want = append(want, a.Newest...)
	}
	s.mu.Lock()
	w := s.members[watcher]
	s.mu.Unlock()
	since := time.Now()
	s.ask(command{Op: opSettle, Newest: want}, []*member{w})
	s.t.Logf("watchers had the newest versions within %v", time.Since(since).Round(time.Millisecond))
	s.log.write(record{Kind: kindQuiet})
}

// tasksUp returns the processes of the tasks that are up.
func (s *storm) tasksUp() (up []*member) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for task := range tasks {
		if m := s.members[task]; m.isUp {
			up = append(up, m)
		}
	}
	return up
}

// ask tells processes a command and waits for their answers.
func (s *storm) ask(c command, members []*member) (answers []answer) {
	s.mu.Lock()
	for _, m := range members {
		s.tellLocked(m, c)
	}
	s.mu.Unlock()
	late := time.After(max(idleTime, updateTime) + upTime)
	for _, m := range members {
		select {
		case a := <-m.idle:
			answers = append(answers, a)
			if a.Error != "" {
				s.fail("task %d life %d: after all steps have ended, %s", m.task, m.life, a.Error)
			}
		case <-m.exited: // a failure is noted
		case <-late:
			s.fail("task %d life %d does not answer", m.task, m.life)
		}
	}
	return answers
}
