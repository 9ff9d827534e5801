package collective

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/tryst-rdma/tryst/cluster"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
)

// members are the devices of a group in the order of their ranks, which nobody changes.
type members struct {
	key        int32
	deviceType string
	list       []member
	perTask    []int // devices of each task, in the order of the ranks
	over       bool  // a restart has ended the group; guarded by instances.mu

	mu    sync.Mutex // guards what follows
	tryst map[cluster.Task]bool
}

// member is one device of a group.
type member struct {
	device     cluster.Device
	attributes *tfpb.DeviceAttributes // as the member has sent them
}

// newMembers ranks the devices: by job, replica, task, type and index, the numbers as numbers. So
// the devices of a task are neighbours.
func newMembers(key int32, deviceType string, list []member) *members {
	m := &members{key: key, deviceType: deviceType, list: slices.Clone(list)}
	slices.SortFunc(m.list, func(a, b member) int { return compareDevices(a.device, b.device) })
	for i := range m.list {
		if i == 0 || m.list[i].device.Task != m.list[i-1].device.Task {
			m.perTask = append(m.perTask, 0)
		}
		m.perTask[len(m.perTask)-1]++
	}
	return m
}

func compareDevices(a, b cluster.Device) int {
	return cmp.Or(
		cmp.Compare(a.Task.Job, b.Task.Job), cmp.Compare(a.Task.Replica, b.Task.Replica), cmp.Compare(a.Task.Index, b.Task.Index),
		cmp.Compare(a.Type, b.Type), cmp.Compare(a.Index, b.Index),
	)
}

// size returns the number of devices.
func (m *members) size() int { return len(m.list) }

// rank returns the place of a device; −1 for one that is no member.
func (m *members) rank(d cluster.Device) int {
	return slices.IndexFunc(m.list, func(o member) bool { return o.device == d })
}

// taskOf returns the index of the task of a rank, in the order of the tasks.
func (m *members) taskOf(rank int) int {
	for task, n := range m.perTask {
		if rank < n {
			return task
		}
		rank -= n
	}
	return len(m.perTask)
}

// isTryst reports whether a task is a Tryst process. Its process does not change as long as the
// group lives, so one call is enough.
func (m *members) isTryst(ctx context.Context, task cluster.Task, ask func(context.Context, cluster.Task) (bool, error)) (bool, error) {
	m.mu.Lock()
	is, known := m.tryst[task]
	m.mu.Unlock()
	if known {
		return is, nil
	}
	is, err := ask(ctx, task)
	if err != nil {
		return false, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.tryst == nil {
		m.tryst = make(map[cluster.Task]bool)
	}
	m.tryst[task] = is
	return is, nil
}

// describeGroup names a group and a member, for errors.
func describeGroup(m *members, rank int) string {
	return fmt.Sprintf("%d (rank %d of %d)", m.key, rank, m.size())
}
