package collective

import (
	"testing"

	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// joinAs enters a device into a group on behalf of a caller, and does not wait for others.
func joinAs(g *groups, from string, key int32, size, task int) (leave func(), err error) {
	leave = g.join(joinRequest{from: from, key: key, size: size, device: &tfpb.DeviceAttributes{Name: device(task, 0).String()}}, func(_ *members, e error) { err = e })
	return leave, err
}

// TestACallersGroupsMakeRoomForItsOwn: a caller that makes groups without end pushes out none of another
// caller, and none of this process. One that holds less gets its place.
func TestACallersGroupsMakeRoomForItsOwn(t *testing.T) {
	var g groups
	join := func(from string, key int32) {
		t.Helper()
		if _, err := joinAs(&g, from, key, 1, 0); err != nil {
			t.Fatal(err)
		}
	}
	join("", 1)
	join("a member", 2)
	for key := range int32(2 * maxGroups) {
		join("the flood", 100+key)
	}
	join("late", 3)
	if len(g.table) != maxGroups || g.find(1) == nil || g.find(2) == nil || g.find(3) == nil {
		t.Errorf("%d groups are known; those of others: %v, %v, %v", len(g.table), g.find(1), g.find(2), g.find(3))
	}
	if g.find(100) != nil || g.find(100+2*maxGroups-1) == nil {
		t.Error("it is not the oldest group of the caller that makes room")
	}
	g.end(errShutdown())
}

// TestGroupsThatWaitPushOutNoComplete: a caller whose groups all wait gets no place of another's.
func TestGroupsThatWaitPushOutNoComplete(t *testing.T) {
	var g groups
	if _, err := joinAs(&g, "a member", 1, 1, 0); err != nil {
		t.Fatal(err)
	}
	var last error
	for key := range int32(maxGroups) {
		_, last = joinAs(&g, "the flood", 100+key, 2, 0)
	}
	if status.CodeOf(last) != status.ResourceExhausted || g.find(1) == nil {
		t.Errorf("one more than the limit: %v; the group of the other: %v", last, g.find(1))
	}
	g.end(errShutdown())
}

// TestACallersDevicesMakeRoomForItsOwn is TestACallersGroupsMakeRoomForItsOwn for the number of devices.
func TestACallersDevicesMakeRoomForItsOwn(t *testing.T) {
	var g groups
	if _, err := joinAs(&g, "a member", 1, 1, 0); err != nil {
		t.Fatal(err)
	}
	for i := range 2 * maxMembers {
		leave, err := joinAs(&g, "the flood", 100+int32(i/maxGroupSize), maxGroupSize, i%maxGroupSize)
		if err != nil {
			t.Fatal(err)
		}
		leave()
	}
	if g.find(1) == nil || g.count > maxMembers {
		t.Errorf("of %d devices, the group of the other: %v", g.count, g.find(1))
	}
	g.end(errShutdown())
	if g.count != 0 || len(g.joins) != 0 {
		t.Errorf("at the end %d devices are counted", g.count)
	}
}

// TestACallersOperationsMakeRoomForItsOwn: the same for the operations of groups.
func TestACallersOperationsMakeRoomForItsOwn(t *testing.T) {
	var all instances
	honest, flood := group(1), group(1)
	what := operation{kind: reduction, dtype: tensor.Float32}
	enter := func(m *members, from string, key instanceKey) {
		t.Helper()
		all.enter(m, entry{from: from, key: key, what: what}, func(_ int, err error) {
			if err != nil {
				t.Fatal(err)
			}
		})
	}
	enter(honest, "a member", instanceKey{group: 1})
	for i := range int32(maxInstances + 10) {
		enter(flood, "the flood", instanceKey{group: 2, instance: i})
	}
	if _, there := all.find(honest, instanceKey{group: 1}, what); !there || len(all.table) != maxInstances {
		t.Errorf("of %d operations, that of the other is there: %v", len(all.table), there)
	}
	all.endGroup(flood)
	if n := all.held.count("the flood"); n != 0 || len(all.table) != 1 || len(all.held.keys) != 1 {
		t.Errorf("after the end of the group %d of its operations are known, and %d in all", n, len(all.table))
	}
}

// TestACallersStepIDsMakeRoomForItsOwn: the same for the step ids of graphs. A master that loses them
// would run its next step under another id than the others.
func TestACallersStepIDsMakeRoomForItsOwn(t *testing.T) {
	var s sequences
	want, err := s.get("a member", 1)
	if err != nil {
		t.Fatal(err)
	}
	for graph := range int64(maxGraphs + 10) {
		if _, err := s.get("the flood", 100+graph); err != nil {
			t.Fatal(err)
		}
	}
	if id := s.find(1); id != want || len(s.next) != maxGraphs || len(s.from) != maxGraphs {
		t.Errorf("of %d graphs, the id of the other's is %d, and was %d", len(s.next), id, want)
	}
}
