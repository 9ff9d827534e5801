package collective

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
)

// GroupState is a group that this process knows: all that it leads, and the complete ones that it is a member of.
type GroupState struct {
	Key          int32
	Size, Joined int
	Since        time.Time // when its first device joined; when it came from the leader in a member
	Complete     bool
	// Missing are the tasks that have not joined, if the cluster tells which they are, and Members some that have; both are
	// at most most, and Members only of a group that is not complete.
	Missing, Members []cluster.Task
}

// GroupStates returns the groups, those that are not complete first, the oldest first, at most most, and their number.
func (c *Collectives) GroupStates(most, named int) (list []GroupState, total int) {
	list, total = c.groups.states(most)
	var tasks []cluster.Task
	for i := range list {
		g := &list[i]
		if g.Complete {
			continue
		}
		if tasks == nil {
			tasks = c.opts.Workers.Tasks()
		}
		g.Missing = missing(g.Members, g.Size-g.Joined, tasks)
		g.Missing, g.Members = g.Missing[:min(len(g.Missing), named)], g.Members[:min(len(g.Members), named)]
	}
	return list, total
}

// missing returns the tasks of the cluster that are not members, if they are exactly n.
func missing(members []cluster.Task, n int, tasks []cluster.Task) []cluster.Task {
	absent := slices.DeleteFunc(slices.Clone(tasks), func(t cluster.Task) bool {
		return slices.Contains(members, t) || len(members) > 0 && !slices.ContainsFunc(members, func(m cluster.Task) bool { return m.Job == t.Job })
	})
	if len(absent) != n {
		return nil
	}
	slices.SortFunc(absent, cluster.Task.Compare)
	return absent
}

func (g *groups) states(most int) (list []GroupState, total int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for key, rec := range g.table {
		list = append(list, GroupState{Key: key, Size: rec.size, Joined: len(rec.joined), Since: rec.since, Complete: rec.complete != nil})
	}
	slices.SortFunc(list, func(a, b GroupState) int {
		if a.Complete != b.Complete {
			if a.Complete {
				return 1
			}
			return -1
		}
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Key, b.Key))
	})
	total = len(list)
	list = list[:min(total, most)]
	for i := range list {
		if list[i].Complete {
			continue
		}
		for _, m := range g.table[list[i].Key].joined {
			if !slices.Contains(list[i].Members, m.device.Task) {
				list[i].Members = append(list[i].Members, m.device.Task)
			}
		}
	}
	return list, total
}

// IsWatch reports whether an edge name is that of a watch: a receive of a buffer that nobody provides, which lasts as long as
// the operation. It waits for nothing that could come.
func IsWatch(edge string) bool { return strings.Contains(edge, ":watch:") }
