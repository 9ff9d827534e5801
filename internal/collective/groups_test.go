package collective

import (
	"context"
	"strings"
	"testing"

	"github.com/tryst-rdma/tryst/cluster"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/transport"
)

// TestDevicesThatNobodyWaitsForMakeRoom: one call that waits does not keep the devices of its group
// whose calls were cancelled.
func TestDevicesThatNobodyWaitsForMakeRoom(t *testing.T) {
	var g groups
	join := func(key int32, size, task int) (leave func(), err error) {
		leave = g.join(joinRequest{key: key, size: size, device: &tfpb.DeviceAttributes{Name: device(task, 0).String()}}, func(_ *members, e error) { err = e })
		return leave, err
	}
	for i := range maxMembers {
		task := i % (maxGroupSize - 1)
		leave, err := join(int32(1+i/(maxGroupSize-1)), maxGroupSize, task)
		if err != nil {
			t.Fatalf("device %d: %v", i, err)
		}
		if task > 0 {
			leave()
		}
	}
	if _, err := join(100, 2, 0); err != nil {
		t.Fatalf("a device of another group: %v", err)
	}
	if rec := g.table[1]; len(rec.joined) != 1 || len(rec.index) != 1 || len(rec.waiting) != 1 || g.count > maxMembers {
		t.Errorf("group 1 has %d devices in a list, %d in an index, and %d wait; %d devices are counted", len(rec.joined), len(rec.index), len(rec.waiting), g.count)
	}
	for task := range maxGroupSize {
		if _, err := join(1, maxGroupSize, task); err != nil {
			t.Fatalf("device %d comes again: %v", task, err)
		}
	}
	if g.find(1) == nil {
		t.Error("a group whose devices have come again is not complete")
	}
	g.end(errShutdown())
}

// TestAForgottenGroupEndsItsBroadcasts: the other members enter the group again, and wait there for the
// one that waits in the broadcast.
func TestAForgottenGroupEndsItsBroadcasts(t *testing.T) {
	for name, fill := range map[string]func(g *groups){
		"groups": func(g *groups) {
			for key := range int32(maxGroups) {
				g.join(joinRequest{key: 100 + key, size: 1, device: &tfpb.DeviceAttributes{Name: device(0, 0).String()}}, func(*members, error) {})
			}
		},
		"devices": func(g *groups) {
			for task := range maxMembers {
				g.join(joinRequest{key: int32(100 + task/(maxGroupSize-1)), size: maxGroupSize, device: &tfpb.DeviceAttributes{Name: device(task, 0).String()}}, func(*members, error) {})
			}
		},
		"groups of the leader": func(g *groups) {
			for key := range int32(maxGroups) {
				m := group(1)
				m.key = 100 + key
				if err := g.add(m); err != nil {
					t.Fatal(err)
				}
			}
		},
	} {
		n := newNetwork(t, 1, 1)
		groups := n.members(t, 4)
		leader := n.process(0)
		var got error
		leader.instances.enter(groups[0].m, entry{key: instanceKey{group: 4, instance: 9}, what: operation{kind: broadcast}}, func(_ int, err error) { got = err })
		fill(&leader.groups)
		if leader.groups.find(4) != nil {
			t.Fatalf("%s: the group is not forgotten", name)
		}
		if status.CodeOf(got) != status.FailedPrecondition || !strings.Contains(got.Error(), "too many groups") {
			t.Errorf("%s: the member that waits: %v", name, got)
		}
	}
}

// wrongGroup is a leader that answers for another group than it was asked for.
type wrongGroup struct{ *process }

func (w wrongGroup) CompleteGroup(_ context.Context, r *tfpb.CompleteGroupRequest) (*tfpb.CompleteGroupResponse, error) {
	return &tfpb.CompleteGroupResponse{GroupKey: r.GetGroupKey() + 1, GroupSize: 1, DeviceAttributes: []*tfpb.DeviceAttributes{r.GetDeviceAttributes()}}, nil
}

// Worker implements transport.WorkerCache.
func (w wrongGroup) Worker(cluster.Task) (transport.Worker, error) { return w, nil }

func (wrongGroup) Tasks() []cluster.Task { return nil }

// TestAnAnswerForAnwrongGroupIsRefused: it would replace that group.
func TestAnAnswerForAnwrongGroupIsRefused(t *testing.T) {
	c := newNetwork(t, 1, 1).process(1)
	c.opts.Workers = wrongGroup{c}
	_, err := c.NewGroup(t.Context(), GroupOptions{Key: 4, Size: 1})
	if status.CodeOf(err) != status.Internal || !strings.Contains(err.Error(), "group 5") {
		t.Error(err)
	}
	if c.groups.find(5) != nil {
		t.Error("the other group is known")
	}
}
