//go:build linux

package storm_test

import (
	"math"
	"slices"
	"time"

	"github.com/tryst-rdma/tryst/status"
)

// Times of the checker of clusters.
const (
	// setTime bounds a SetCluster: its channels to tasks that leave are closed, also to one that is stopped.
	setTime = 15 * time.Second
	// logged is how much later than a receive has ended its process may write so: it looks at the whole value before that,
	// and all processes share the processors.
	logged = 3 * time.Second
)

// pair is a task, and one that is in its cluster or not.
type pair struct{ task, other int }

// absence is a time in which a task was not in the cluster of another one. A time is never if it has not come.
type absence struct {
	life          int   // of the process whose cluster it is
	leaving, left int64 // SetCluster without the task was called, and has returned
	coming, back  int64 // SetCluster with it was called, and has returned
	began         bool  // the process has begun without it
}

const never = math.MaxInt64

// Sort has these for errors that are of a kind of Aborted.
const (
	sortLeft  = "task left"
	sortEnded = "step ended"
)

// cluster is an event of the cluster of a process.
func (c *check) cluster(r record) {
	if c.ended(r) {
		return
	}
	id := lifeID{r.Task, r.Life}
	_, begun := c.sets[id]
	if r.Kind == kindCluster {
		c.sets[id] = append(c.sets[id], r)
	}
	for other := range tasks {
		p := pair{r.Task, other}
		has := other == r.Task || slices.Contains(r.Tasks, other)
		list := c.absences[p]
		var last *absence
		if n := len(list); n > 0 && list[n-1].back == never && list[n-1].life == r.Life {
			last = &list[n-1]
		}
		switch {
		case r.Kind == kindCluster && !has && last == nil:
			c.absences[p] = append(list, absence{r.Life, r.At, never, never, never, false})
		case r.Kind == kindCluster && has && last != nil && last.coming == never:
			last.coming = r.At
		case r.Kind == kindCluster || r.Code != "":
		case !has && last == nil && !begun:
			c.absences[p] = append(list, absence{r.Life, r.At, r.At, never, never, true})
		case !has && last != nil && last.left == never:
			last.left = r.At
		case has && last != nil:
			last.back = r.At
		}
	}
	if r.Kind == kindSet && begun {
		c.checkSetCluster(r)
	}
}

// checkSetCluster checks how a SetCluster has ended.
func (c *check) checkSetCluster(r record) {
	id := lifeID{r.Task, r.Life}
	list := c.sets[id]
	if len(list) == 0 {
		return
	}
	began := list[0]
	c.sets[id] = list[1:]
	switch {
	case c.stops(r):
	case r.Code != "":
		c.breach("cluster", r, "SetCluster has failed")
	case r.At > c.covered(began.At+int64(setTime), 0, r.Task):
		c.breach("cluster", r, "SetCluster has taken %v", time.Duration(r.At-began.At).Round(time.Millisecond))
	}
}

// checkSets checks that each SetCluster has returned.
func (c *check) checkSets() {
	for id, open := range c.sets {
		for _, r := range open {
			if c.lives[id].to == 0 {
				c.breach("cluster", r, "SetCluster has not returned")
			}
		}
	}
}

// gone ends what is open at the end of a process.
func (c *check) gone(r record) {
	for p, list := range c.absences {
		if n := len(list); p.task == r.Task && n > 0 && list[n-1].back == never {
			list[n-1].coming, list[n-1].back = min(list[n-1].coming, r.At), r.At
		}
	}
}

// parted reports whether a task was not surely in the cluster of another one at some time.
func (c *check) parted(p pair, from, to int64) bool {
	return slices.ContainsFunc(c.absences[p], func(a absence) bool { return a.leaving <= to && a.back >= from })
}

// endedByLeaving reports whether one of the tasks may have ended a step by a time since a task of the step had left its
// cluster.
func (c *check) endedByLeaving(step, at int64, of ...int) bool {
	began, ok := c.begins[step]
	if !ok {
		return false
	}
	p := c.plan(step)
	for other := range tasks {
		for _, t := range of {
			if p.has(other) && c.parted(pair{t, other}, began, at) {
				return true
			}
		}
	}
	return false
}

// checkLeft checks a receive that has ended, and the times in which its sender was not in the cluster of its process.
func (c *check) checkLeft(began, r record) {
	if c.stops(r) {
		return
	}
	for _, a := range c.absences[pair{r.Task, r.Peer}] {
		if a.life != r.Life || a.left == never || r.At < a.left {
			continue
		}
		own := r.Code == status.Cancelled.String() || r.Code == status.DeadlineExceeded.String()
		switch within := began.At >= a.left && r.At <= a.coming; {
		case within && r.Code == "":
			c.breach("left", r, "a value has come from a task that had left the cluster")
		case within && !own && r.Sort != sortLeft && !a.began && !c.endedBySomebody(r.Step, r.At, r.Task):
			c.breach("left", r, "the sender had left the cluster, and the error does not say so")
		case within || began.At >= a.left:
		case r.Code == "" && r.At > c.covered(a.left+int64(logged), 0, r.Task):
			c.breach("left", r, "a value has come %v after its sender had left the cluster", time.Duration(r.At-a.left).Round(time.Millisecond))
		case r.At > c.covered(a.left+int64(prompt), 0, r.Task):
			c.breach("left", r, "the receive has ended %v after its sender had left the cluster", time.Duration(r.At-a.left).Round(time.Millisecond))
		case r.Code == status.Aborted.String() && r.Sort != sortLeft && !c.endedBySomebody(r.Step, r.At, r.Task, r.Peer) && !c.restarted(began, r):
			c.breach("left", r, "the sender had left the cluster, and the error does not say so")
		}
	}
}

// checkSort checks that the error of a task which has left comes only if one has.
func (c *check) checkSort(r record) {
	if r.Sort == sortLeft && !c.stops(r) && !c.endedByLeaving(r.Step, r.At, r.Task, r.Peer) {
		c.breach("left", r, "no task had left the cluster")
	}
}
