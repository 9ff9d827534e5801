package cluster

import (
	"cmp"
	"strconv"
	"strings"
)

// Task is the name of a process of a cluster. Tasks are compared with ==. The zero Task is no
// name.
type Task struct {
	Job            string // a letter, then letters, digits and underscores
	Replica, Index int    // 0 to 2^31-1; the replica is 0 in every cluster spec
}

// ParseTask parses "/job:worker/replica:0/task:3". A missing replica is 0. A device part, a
// wildcard, and a missing job or task are errors.
//
// The Task's strings are parts of s and keep it alive.
func ParseTask(s string) (Task, error) {
	const kind = "task name"
	var p Pattern
	if at, why := p.parse(s); why != "" {
		return Task{}, invalid(kind, s, "at byte %d: %s", at, why)
	}
	const want = "; want /job:NAME/task:NUMBER"
	switch {
	case p.HasType || p.HasIndex:
		return Task{}, invalid(kind, s, "it names a device"+want)
	case strings.IndexByte(s, '*') >= 0: // in a valid name * is a wildcard
		return Task{}, invalid(kind, s, "it holds a wildcard"+want)
	case !p.HasJob:
		return Task{}, invalid(kind, s, "no job"+want)
	case !p.HasTask:
		return Task{}, invalid(kind, s, "no task"+want)
	}
	return Task{Job: p.Job, Replica: p.Replica, Index: p.Task}, nil
}

// String returns the full name, "/job:worker/replica:0/task:3".
func (t Task) String() string {
	return string(t.appendTo(make([]byte, 0, 64)))
}

func (t Task) appendTo(b []byte) []byte {
	b = append(append(b, "/job:"...), t.Job...)
	b = strconv.AppendInt(append(b, "/replica:"...), int64(t.Replica), 10)
	return strconv.AppendInt(append(b, "/task:"...), int64(t.Index), 10)
}

// Compare orders tasks by job, then replica, then index, as numbers: task 9
// comes before task 10.
func (t Task) Compare(u Task) int {
	return cmp.Or(
		strings.Compare(t.Job, u.Job),
		cmp.Compare(t.Replica, u.Replica),
		cmp.Compare(t.Index, u.Index),
	)
}
