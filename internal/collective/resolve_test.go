package collective

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// The names with RMA, Resolver, Health and Manager follow TensorFlow's
// collective_rma_distributed_test.cc, collective_param_resolver_distributed_test.cc,
// device_resolver_distributed_test.cc and rpc_collective_executor_mgr_test.cc.

// recvBuf calls RecvBuf of process 0 for a buffer of 8 bytes.
func recvBuf(ctx context.Context, n *network, change func(*tfpb.RecvBufRequest)) ([]byte, error) {
	req := &tfpb.RecvBufRequest{
		StepId: 3, BufRendezvousKey: "key0", NumBytes: 8, SrcDevice: device(0, 0).String(), SrcIncarnation: 1000, DstDevice: device(1, 0).String(),
	}
	if change != nil {
		change(req)
	}
	resp, err := n.process(0).RecvBuf(ctx, req)
	if err != nil {
		return nil, err
	}
	dst := make([]byte, 8)
	return dst, copyContent(dst, resp)
}

func provideKey0(t *testing.T, n *network) *tensor.Tensor {
	v := slice[float32](t, 1, 2)
	n.process(0).Step(3).bufs.provide(t.Context(), forDevice("key0", device(1, 0)), v, func(error) {})
	return v
}

func TestRMAProdFirstOK(t *testing.T) {
	n := newNetwork(t, 1, 1)
	v := provideKey0(t, n)
	got, err := recvBuf(t.Context(), n, nil)
	if err != nil || string(got) != string(v.Bytes()) {
		t.Errorf("%v, %v", got, err)
	}
	if !v.Buffer().Unique() {
		t.Error("a reference is left")
	}
}

func TestRMAConsFirstOK(t *testing.T) {
	n := newNetwork(t, 1, 1)
	done := make(chan error, 1)
	go func() {
		_, err := recvBuf(t.Context(), n, nil)
		done <- err
	}()
	provideKey0(t, n)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestRMAConsFirstAbort(t *testing.T) {
	n := newNetwork(t, 1, 1)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := recvBuf(ctx, n, nil)
		done <- err
	}()
	cancel()
	if err := <-done; status.CodeOf(err) != status.Cancelled || !strings.Contains(err.Error(), "Cancelled") {
		t.Error(err)
	}
	if p := n.process(0); len(p.steps) != 0 {
		t.Error("a step that only a peer has used is left")
	}
}

func TestRMAResponseTooLarge(t *testing.T) {
	n := newNetwork(t, 1, 1)
	provideKey0(t, n)
	_, err := recvBuf(t.Context(), n, func(r *tfpb.RecvBufRequest) { r.NumBytes = 4 })
	if status.CodeOf(err) != status.Internal || !strings.Contains(err.Error(), "Tensor Size Mismatch") {
		t.Error(err)
	}
	resp := &tfpb.RecvBufResponse{TransportOptions: mustAny(make([]byte, 9))}
	if err := copyContent(make([]byte, 8), resp); status.CodeOf(err) != status.Internal || !strings.Contains(err.Error(), "Tensor Size Mismatch") {
		t.Errorf("a response that is larger than asked for: %v", err)
	}
}

func TestRMAWorkerRestart(t *testing.T) {
	n := newNetwork(t, 1, 1)
	provideKey0(t, n)
	_, err := recvBuf(t.Context(), n, func(r *tfpb.RecvBufRequest) { r.SrcIncarnation++ })
	want := `RecvBuf expects a different device incarnation: 1001 vs. 1000. Your worker job that contains the device ("/job:worker/replica:0/task:0/device:CPU:0") was probably restarted. Check your worker job for the reason why it was restarted.`
	if status.CodeOf(err) != status.FailedPrecondition || status.From(err).Message() != want {
		t.Error(err)
	}
	n.process(0).EndStep(3)
}

// TestBufsDeviceIncarnationMismatch is F9 of TensorFlow's buf_rendezvous_test.cc: the table of a step
// has no devices, so the check is before it.
func TestBufsDeviceIncarnationMismatch(t *testing.T) {
	n := newNetwork(t, 1, 1)
	v := provideKey0(t, n)
	for _, c := range []struct {
		device int
		code   status.Code
	}{{0, status.FailedPrecondition}, {1, status.NotFound}} {
		n.process(0).consume(t.Context(), 3, "key0", device(0, c.device), 5, device(1, 0), func(_ *tensor.Tensor, err error) {
			if status.CodeOf(err) != c.code {
				t.Errorf("device %d: %v, want %v", c.device, err, c.code)
			}
		})
	}
	if v.Buffer().Unique() {
		t.Error("the buffer is gone")
	}
}

func TestResolverGroupsAreEqualAtAllWorkers(t *testing.T) {
	for _, shape := range [][]int{{1}, {2, 2}, {3, 3, 3, 3}} {
		n := newNetwork(t, shape...)
		groups := n.members(t, 4) // checks the ranks
		for _, g := range groups {
			for rank := range groups {
				if g.Member(rank) != groups[0].Member(rank) {
					t.Errorf("%v: rank %d is %v for one and %v for another", shape, rank, g.Member(rank), groups[0].Member(rank))
				}
			}
		}
		resp, err := n.process(0).Collectives.CompleteGroup(t.Context(), &tfpb.CompleteGroupRequest{
			GroupKey: 4, GroupSize: int32(len(groups)), DeviceType: "CPU", DeviceAttributes: n.process(0).devices[0],
		})
		if err != nil || int(resp.GetNumTasks()) != len(shape) || len(resp.GetDeviceAttributes()) != len(groups) || resp.GetDeviceType() != "CPU" || resp.GetGroupKey() != 4 {
			t.Errorf("%v: %v, %v", shape, resp, err)
		}
	}
}

func TestResolverFindsTheSourceOfABroadcast(t *testing.T) {
	for _, source := range []int{0, 3} {
		n := newNetwork(t, 1, 1, 1, 1)
		groups := n.members(t, 4)
		errs := each(4, func(i int) error {
			got, err := n.process(i).instance(t.Context(), groups[i].m, "op", entry{
				key: instanceKey{group: 4, instance: 9}, what: operation{broadcast, tensor.Float32, tensor.Vector(3)}, rank: i, isSource: i == source,
			})
			if err == nil && got != source {
				err = fmt.Errorf("rank %d found the source %d, want %d", i, got, source)
			}
			return err
		})
		if err := errors.Join(errs...); err != nil {
			t.Error(err)
		}
	}
}

func TestResolverDifferentIncarnation(t *testing.T) {
	n := newNetwork(t, 1, 1)
	n.members(t, 4)
	restarted := n.start(t, 1, 1, 77)
	_, err := restarted.NewGroup(t.Context(), GroupOptions{Key: 4, Size: 2})
	if status.CodeOf(err) != status.FailedPrecondition || !strings.Contains(err.Error(), "current incarnation doesn't match") {
		t.Errorf("the first call after the restart: %v", err)
	}
	n.members(t, 4) // the group is made again
}

func TestResolverKnowsALeaderThatHasRestarted(t *testing.T) {
	n := newNetwork(t, 1, 1)
	groups := n.members(t, 4)
	n.start(t, 0, 1, 78)
	e := entry{key: instanceKey{group: 4, instance: 9}, what: operation{gather, tensor.Float32, tensor.Vector(3)}, rank: 1}
	if _, err := n.process(1).instance(t.Context(), groups[1].m, "op", e); status.CodeOf(err) != status.FailedPrecondition || !strings.Contains(err.Error(), "server has restarted") {
		t.Error(err)
	}
	n.members(t, 4)
}

// TestARestartedMemberFailsTheOthersOnce: they forget the group, and make it again.
func TestARestartedMemberFailsTheOthersOnce(t *testing.T) {
	for _, plain := range []bool{false, true} {
		n := newNetwork(t, 1, 1)
		n.process(1).plain = plain
		groups := n.members(t, 4)
		n.start(t, 1, 1, 79).plain = plain
		if _, err := groups[0].AllReduce(t.Context(), ramp(t, 0, 10), Add); status.CodeOf(err) != status.FailedPrecondition {
			t.Errorf("plain=%v: %v", plain, err)
		}
		n.members(t, 4)
	}
}

func TestGroupsRefuse(t *testing.T) {
	var g groups
	ask := func(size int, deviceType string, task int) (err error) {
		g.join(joinRequest{name: "op", key: 1, size: size, deviceType: deviceType, device: &tfpb.DeviceAttributes{Name: device(task, 0).String(), Incarnation: 5}},
			func(_ *members, e error) { err = e })
		return err
	}
	_ = ask(2, "CPU", 0) // waits
	if err := ask(3, "CPU", 1); !strings.Contains(fmt.Sprint(err), "has group_size 3 and group_key 1 but that group has size 2") {
		t.Error(err)
	}
	if err := ask(2, "GPU", 1); !strings.Contains(fmt.Sprint(err), "with type GPU and group_key 1 but that group has type CPU") {
		t.Error(err)
	}
	if err := ask(2, "CPU", 1); err != nil {
		t.Error(err)
	}
	if err := ask(2, "CPU", 2); !strings.Contains(fmt.Sprint(err), "but that group doesn't contain that device.") {
		t.Error(err)
	}
	if err := ask(2, "CPU", 0); err != nil {
		t.Errorf("a member that asks again: %v", err)
	}
}

// TestGroupsAreBounded: the oldest complete group is forgotten; groups that wait are not.
func TestGroupsAreBounded(t *testing.T) {
	var g groups
	join := func(key int32, size int) (err error) {
		g.join(joinRequest{key: key, size: size, device: &tfpb.DeviceAttributes{Name: device(0, 0).String()}}, func(_ *members, e error) { err = e })
		return err
	}
	for key := range int32(maxGroups + 10) {
		if err := join(key+1, 1); err != nil {
			t.Fatal(err)
		}
	}
	if len(g.table) != maxGroups || g.find(1) != nil || g.find(maxGroups+10) == nil {
		t.Errorf("%d groups are known", len(g.table))
	}
	for key := range int32(maxGroups) {
		_ = join(100_000+key, 2)
	}
	if err := join(1, 1); status.CodeOf(err) != status.ResourceExhausted {
		t.Errorf("one more than the limit: %v", err)
	}
	g.end(errShutdown())
}

// TestMembersOfGroupsAreBounded: large groups push out complete ones, and not those that wait.
func TestMembersOfGroupsAreBounded(t *testing.T) {
	var g groups
	join := func(key int32, size, task int) (err error) {
		g.join(joinRequest{key: key, size: size, device: &tfpb.DeviceAttributes{Name: device(task, 0).String()}}, func(_ *members, e error) { err = e })
		return err
	}
	for key := range int32(5) {
		for task := range maxGroupSize {
			if err := join(key+1, maxGroupSize, task); err != nil {
				t.Fatal(err)
			}
		}
	}
	if g.find(1) != nil || g.find(5) == nil || g.count > maxMembers {
		t.Errorf("%d devices are known", g.count)
	}
	for task := range maxMembers / maxGroupSize * (maxGroupSize - 1) {
		_ = join(100+int32(task/(maxGroupSize-1)), maxGroupSize, task)
	}
	for task := range 4 {
		_ = join(int32(200+task), 2, task)
	}
	if err := join(300, 2, 0); status.CodeOf(err) != status.ResourceExhausted {
		t.Errorf("one more than the limit: %v", err)
	}
	g.end(errShutdown())
	if g.count != 0 {
		t.Errorf("%d devices are counted at the end", g.count)
	}
	big := &tfpb.DeviceAttributes{Name: device(0, 0).String(), PhysicalDeviceDesc: strings.Repeat("x", maxAttributes)}
	g.join(joinRequest{key: 1, size: 1, device: big}, func(_ *members, err error) {
		if status.CodeOf(err) != status.InvalidArgument {
			t.Errorf("attributes of %d bytes: %v", maxAttributes, err)
		}
	})
}

// TestGroupsThatNobodyWaitsForMakeRoom: a device stays a member when its call is cancelled, but the
// group is forgotten when there are too many groups or devices. A group with a waiting device stays.
func TestGroupsThatNobodyWaitsForMakeRoom(t *testing.T) {
	var g groups
	join := func(key int32, size, task int) (leave func(), err error) {
		leave = g.join(joinRequest{key: key, size: size, device: &tfpb.DeviceAttributes{Name: device(task, 0).String()}}, func(_ *members, e error) { err = e })
		return leave, err
	}
	if _, err := join(1, 2, 0); err != nil { // waits
		t.Fatal(err)
	}
	for key := range int32(maxGroups + 10) {
		leave, err := join(10+key, 2, 0)
		if err != nil {
			t.Fatalf("group %d: %v", key, err)
		}
		leave()
	}
	if rec := g.table[1]; len(g.table) != maxGroups || rec == nil || len(rec.waiting) != 1 {
		t.Errorf("%d groups are known; the one that waits is %v", len(g.table), rec)
	}
	for task := range maxMembers + 10 {
		leave, err := join(100_000+int32(task/1000), maxGroupSize, task)
		if err != nil {
			t.Fatalf("device %d: %v", task, err)
		}
		leave()
	}
	if rec := g.table[1]; g.count > maxMembers || rec == nil || len(rec.waiting) != 1 {
		t.Errorf("%d devices are known; the group that waits is %v", g.count, rec)
	}
	if _, err := join(1, 2, 1); err != nil || g.find(1) == nil {
		t.Errorf("the group that waited is not complete: %v", err)
	}
}

// TestInstancesAreBounded is the same for operations.
func TestInstancesAreBounded(t *testing.T) {
	var all instances
	m := group(1)
	for i := range int32(maxInstances + 10) {
		all.enter(m, entry{key: instanceKey{group: 1, instance: i}, what: operation{kind: reduction}}, func(_ int, err error) {
			if err != nil {
				t.Fatal(err)
			}
		})
	}
	if len(all.table) != maxInstances || all.held.count("") != maxInstances {
		t.Errorf("%d instances are known, in a list of %d", len(all.table), all.held.count(""))
	}
}

// TestBroadcastsThatWaitAreBounded: those that somebody waits for are not forgotten, so one more is refused.
func TestBroadcastsThatWaitAreBounded(t *testing.T) {
	var all instances
	m := group(1, 1)
	enter := func(i int32) (err error) {
		all.enter(m, entry{key: instanceKey{group: 1, instance: i}, what: operation{kind: broadcast}}, func(_ int, e error) { err = e })
		return err
	}
	for i := range int32(maxInstances) {
		if err := enter(i); err != nil {
			t.Fatal(err)
		}
	}
	if err := enter(maxInstances); status.CodeOf(err) != status.ResourceExhausted || len(all.table) != maxInstances {
		t.Errorf("one more: %v; %d are known", err, len(all.table))
	}
}

// TestAGroupThatIsMadeAgainEndsWhatWaits: a member waits in a broadcast of a group, or for a group,
// that another one replaces.
func TestAGroupThatIsMadeAgainEndsWhatWaits(t *testing.T) {
	var all instances
	e := entry{key: instanceKey{group: 4, instance: 1}, what: operation{broadcast, tensor.Float32, tensor.Vector(3)}}
	enter := func(m *members) *error {
		err := new(error)
		all.enter(m, e, func(_ int, e error) { *err = e })
		return err
	}
	first := enter(group(1, 1))
	second := enter(group(1, 1))
	if err := *first; status.CodeOf(err) != status.FailedPrecondition || !strings.Contains(err.Error(), "made again") {
		t.Errorf("after a broadcast of the new group: %v", err)
	}
	if *second != nil {
		t.Errorf("in the new group: %v", *second)
	}
	if err := all.add(group(1, 1), e.key, e.what, 0); err != nil {
		t.Error(err)
	}
	if err := *second; status.CodeOf(err) != status.FailedPrecondition {
		t.Errorf("after an operation that the leader has confirmed: %v", err)
	}

	var g groups
	var err error
	g.join(joinRequest{key: 4, size: 2, device: &tfpb.DeviceAttributes{Name: device(0, 0).String()}}, func(_ *members, e error) { err = e })
	m := group(1, 1)
	m.key = 4
	if err := g.add(m); err != nil {
		t.Error(err)
	}
	if status.CodeOf(err) != status.FailedPrecondition || !strings.Contains(err.Error(), "made again") {
		t.Errorf("after a group that the leader has sent: %v", err)
	}
}

// TestARestartedMemberEndsTheBroadcastsOfItsGroup: the one that waits need not wait until the new
// group begins the same operation.
func TestARestartedMemberEndsTheBroadcastsOfItsGroup(t *testing.T) {
	n := newNetwork(t, 1, 1)
	groups := n.members(t, 4)
	leader := n.process(0)
	var got error
	leader.instances.enter(groups[0].m, entry{key: instanceKey{group: 4, instance: 9}, what: operation{kind: broadcast}}, func(_ int, err error) { got = err })
	_, err := n.start(t, 1, 1, 77).NewGroup(t.Context(), GroupOptions{Key: 4, Size: 2})
	if status.CodeOf(err) != status.FailedPrecondition || status.CodeOf(got) != status.FailedPrecondition {
		t.Errorf("the restarted member: %v; the one that waits: %v", err, got)
	}
	if len(leader.instances.table) != 0 {
		t.Error("the operation of the old group is left")
	}
	got = nil
	leader.instances.enter(groups[0].m, entry{key: instanceKey{group: 4, instance: 9}, what: operation{kind: broadcast}}, func(_ int, err error) { got = err })
	if status.CodeOf(got) != status.FailedPrecondition || len(leader.instances.table) != 0 {
		t.Errorf("a member that enters the old group late: %v", got)
	}
}

// TestAMemberDoesNotWaitForItself: only the leader waits for the devices of a group. At a member a
// group can be forgotten between the leader's response and its use.
func TestAMemberDoesNotWaitForItself(t *testing.T) {
	var g groups
	var err error
	r := joinRequest{key: 4, size: 2, device: &tfpb.DeviceAttributes{Name: device(0, 0).String()}, member: true}
	g.join(r, func(_ *members, e error) { err = e })
	if status.CodeOf(err) != status.FailedPrecondition || !strings.Contains(err.Error(), "forgotten") {
		t.Error(err)
	}
	if len(g.table) != 0 {
		t.Error("the member has made the group")
	}
}

func TestAStepThatEndedAnswersAtOnce(t *testing.T) {
	n := newNetwork(t, 1, 1)
	provideKey0(t, n)
	n.process(0).EndStep(3)
	if _, err := recvBuf(t.Context(), n, nil); status.CodeOf(err) != status.Aborted || !strings.Contains(err.Error(), "Cleanup 3") {
		t.Error(err)
	}
	for id := range int64(endedSteps + 5) {
		n.process(0).Step(id + 10)
		n.process(0).EndStep(id + 10)
	}
	if p := n.process(0); len(p.ended.ids) != endedSteps || len(p.steps) != 0 {
		t.Errorf("%d ended steps are remembered, %d steps are left", len(p.ended.ids), len(p.steps))
	}
}

// TestAStepIsNotMadeAgainAfterItsEnd: a kernel may begin while the cleanup of its step is under way,
// also in a step that had no operation before. Nobody would end the step that it makes.
func TestAStepIsNotMadeAgainAfterItsEnd(t *testing.T) {
	c := newNetwork(t, 1).process(0)
	c.EndStep(3)
	s := c.Step(3)
	if err := context.Cause(s.ctx); status.CodeOf(err) != status.Aborted || !strings.Contains(err.Error(), "Cleanup 3") {
		t.Errorf("an operation of the step gets %v", err)
	}
	if len(c.steps) != 0 {
		t.Errorf("%d steps are left", len(c.steps))
	}
}

func TestHealth(t *testing.T) {
	n := newNetwork(t, 1, 1)
	c := n.process(0)
	check := func(when string, want status.Code) {
		t.Helper()
		if err := c.CheckPeerHealth(t.Context(), device(1, 0).Task); status.CodeOf(err) != want {
			t.Errorf("%s: %v, want %v", when, err, want)
		}
	}
	check("without cached attributes", status.OK)
	n.members(t, 4)
	check("OK", status.OK)
	n.start(t, 1, 1, 80)
	check("restarted", status.FailedPrecondition)
	n.start(t, 1, 0, 81)
	check("different devices", status.FailedPrecondition)
	n.kill(1)
	check("failed peer", status.Unavailable)
	if err := c.CheckPeerHealth(t.Context(), device(0, 0).Task); err != nil {
		t.Errorf("itself: %v", err)
	}
	if err := c.CheckPeerHealth(t.Context(), device(9, 0).Task); status.CodeOf(err) != status.NotFound {
		t.Errorf("an unknown task: %v", err)
	}
}

func TestManagerFindOrCreate(t *testing.T) {
	c := newNetwork(t, 1).process(0)
	s := c.Step(5)
	if c.Step(5) != s || c.Step(6) == s {
		t.Error("a step is not the same until its cleanup")
	}
	c.EndStep(5)
	if again := c.Step(5); again == s || again.ctx.Err() == nil {
		t.Error("a step goes on after its cleanup")
	}
}

func TestManagerStepSequence(t *testing.T) {
	n := newNetwork(t, 1, 1)
	leader, member := n.process(0), n.process(1)
	get := func() int64 {
		resp, err := leader.Collectives.GetStepSequence(t.Context(), &tfpb.GetStepSequenceRequest{GraphKey: []int64{7, 7}})
		if err != nil || len(resp.GetStepSequence()) != 2 || resp.GetStepSequence()[0].GetNextStepId() != resp.GetStepSequence()[1].GetNextStepId() {
			t.Fatalf("%v, %v", resp, err)
		}
		return resp.GetStepSequence()[0].GetNextStepId()
	}
	if member.NextStepID(7) != InvalidStep {
		t.Error("a step id is valid before it was requested")
	}
	if err := member.RefreshStepID(t.Context(), 7); err != nil {
		t.Fatal(err)
	}
	first := member.NextStepID(7)
	if again := get(); first != again || again != get() || first&^stepIDMask != 0 {
		t.Errorf("the member has %d, the leader %d", first, get())
	}
	member.RetireStepID(7, first)
	if got := member.NextStepID(7); got != (first+1)&stepIDMask {
		t.Errorf("after a step: %d, want %d", got, first+1)
	}
	member.RetireStepID(7, first)
	if got := member.NextStepID(7); got != InvalidStep {
		t.Errorf("after a step that was not the next one: %d", got)
	}
	for range 4 {
		leader.RetireStepID(7, leader.NextStepID(7))
	}
	if err := member.RefreshStepID(t.Context(), 7); err != nil || member.NextStepID(7) != (first+4)&stepIDMask {
		t.Errorf("after a leader that is ahead: %d, want %d; %v", member.NextStepID(7), first+4, err)
	}
	if err := leader.RefreshStepID(t.Context(), 7); err != nil || leader.NextStepID(7) == first+4 {
		t.Error("a leader does not draw a new step id")
	}
	if _, err := member.Collectives.GetStepSequence(t.Context(), &tfpb.GetStepSequenceRequest{}); status.CodeOf(err) != status.Internal {
		t.Errorf("a member was asked: %v", err)
	}
}

func TestRequestsOfStrangers(t *testing.T) {
	c := newNetwork(t, 1).process(0).Collectives
	if _, err := c.CompleteGroup(t.Context(), &tfpb.CompleteGroupRequest{GroupKey: 1, GroupSize: 1}); status.CodeOf(err) != status.Internal ||
		status.From(err).Message() != "CompleteGroupRequest device_attributes is not set. Make sure you're running the same version of Tensorflow on all workers." {
		t.Error(err)
	}
	if _, err := c.CompleteGroup(t.Context(), &tfpb.CompleteGroupRequest{GroupKey: 1, GroupSize: 1, DeviceAttributes: &tfpb.DeviceAttributes{Name: "x"}}); status.CodeOf(err) != status.InvalidArgument {
		t.Error(err)
	}
	if _, err := c.CompleteInstance(t.Context(), &tfpb.CompleteInstanceRequest{GroupKey: 5}); status.CodeOf(err) != status.FailedPrecondition {
		t.Error(err)
	}
	long := &tfpb.RecvBufRequest{SrcDevice: device(0, 0).String(), SrcIncarnation: 1000, BufRendezvousKey: strings.Repeat("k", maxKey+1), DstDevice: device(1, 0).String()}
	if _, err := c.RecvBuf(t.Context(), long); status.CodeOf(err) != status.InvalidArgument {
		t.Errorf("a long key: %v", err)
	}
	if _, err := c.RecvBuf(t.Context(), &tfpb.RecvBufRequest{SrcDevice: "x"}); status.CodeOf(err) != status.InvalidArgument {
		t.Error(err)
	}
	for _, resp := range []*tfpb.CompleteGroupResponse{
		{}, {GroupSize: 2, DeviceAttributes: []*tfpb.DeviceAttributes{{Name: device(0, 0).String()}}}, {GroupSize: 1, DeviceAttributes: []*tfpb.DeviceAttributes{{Name: "x"}}},
	} {
		if err := c.addGroup(resp); err == nil {
			t.Errorf("a leader's response is accepted: %v", resp)
		}
	}
}

// TestStepIDsAreBounded: the oldest graph is forgotten for a new one.
func TestStepIDsAreBounded(t *testing.T) {
	var s sequences
	for graph := range int64(maxGraphs + 10) {
		if _, err := s.get("", graph); err != nil {
			t.Fatal(err)
		}
	}
	if len(s.next) != maxGraphs || s.held.count("") != maxGraphs || s.find(0) != InvalidStep || s.find(maxGraphs+9) == InvalidStep {
		t.Errorf("%d graphs are known, in a list of %d", len(s.next), s.held.count(""))
	}
}
