package collective

import (
	"context"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor/tensorproto"
	"github.com/tryst-rdma/tryst/transport"
)

// CompleteGroup enters a device into a group and waits until all its members have entered. The
// response lists them in the order of their ranks.
func (c *Collectives) CompleteGroup(ctx context.Context, req *tfpb.CompleteGroupRequest) (*tfpb.CompleteGroupResponse, error) {
	if req.GetDeviceAttributes() == nil {
		return nil, status.New(status.Internal, "CompleteGroupRequest device_attributes is not set. Make sure you're running the same version of Tensorflow on all workers.")
	}
	if req.GetOnlyAsk() {
		return &tfpb.CompleteGroupResponse{GroupKey: req.GetGroupKey(), GroupSize: req.GetGroupSize(), DeviceAttributes: c.groups.joined(req.GetGroupKey())}, nil
	}
	m, err := c.group(ctx, joinRequest{
		from: transport.CallerOf(ctx).Share,
		name: "of " + req.GetDeviceAttributes().GetName(), key: req.GetGroupKey(), size: int(req.GetGroupSize()),
		deviceType: req.GetDeviceType(), device: req.GetDeviceAttributes(), patience: c.opts.LeaderTimeout,
	}, kind(req.GetCollectiveType()))
	if err != nil {
		return nil, err
	}
	resp := &tfpb.CompleteGroupResponse{
		GroupKey: m.key, GroupSize: req.GetGroupSize(), DeviceType: m.deviceType, NumTasks: int32(len(m.perTask)), //nolint:gosec // at most maxGroupSize
	}
	for _, member := range m.list {
		resp.DeviceAttributes = append(resp.DeviceAttributes, member.attributes)
	}
	return resp, nil
}

// group returns a group, once it is complete, that a device is a member of. A member asks the
// leader the first time.
func (c *Collectives) group(ctx context.Context, r joinRequest, k kind) (*members, error) {
	r.member = !c.leads()
	if r.member && c.groups.find(r.key) == nil {
		resp, err := callLeader(ctx, c, r.patience, func(ctx context.Context, w leader) (*tfpb.CompleteGroupResponse, error) {
			return w.CompleteGroup(ctx, &tfpb.CompleteGroupRequest{
				GroupKey: r.key, GroupSize: int32(r.size), DeviceType: r.deviceType, //nolint:gosec // checked by the leader
				CollectiveType: int32(k), DeviceAttributes: r.device,
			})
		})
		if err != nil {
			return nil, err
		}
		if resp.GetGroupKey() != r.key {
			return nil, status.Errorf(status.Internal, "the leader of the collectives, %v, was asked for group %d, and its response is that of group %d", c.opts.Leader, r.key, resp.GetGroupKey())
		}
		if err := c.addGroup(resp); err != nil {
			return nil, err
		}
	}
	return wait(ctx, func(done func(*members, error)) func() { return c.groups.join(r, done) })
}

// addGroup enters a group that the leader has sent.
func (c *Collectives) addGroup(resp *tfpb.CompleteGroupResponse) error {
	list := make([]member, 0, len(resp.GetDeviceAttributes()))
	for _, a := range resp.GetDeviceAttributes() {
		d, err := cluster.ParseDevice(a.GetName())
		if err != nil {
			return status.From(err).WithPrefix("CompleteGroupResponse")
		}
		list = append(list, member{d, a})
	}
	if len(list) == 0 {
		return status.New(status.Internal, "CompleteGroupResponse device_attributes is empty. Make sure you're running the same version of Tensorflow on all workers.")
	}
	if len(list) != int(resp.GetGroupSize()) {
		return status.Errorf(status.Internal, "CompleteGroupResponse group_size doesn't match device_name list: %d and %d", resp.GetGroupSize(), len(list))
	}
	return c.groups.add(newMembers(resp.GetGroupKey(), resp.GetDeviceType(), list))
}

// CompleteInstance enters an operation of a member. For a broadcast it waits until all members
// have entered, and returns the rank of the source.
func (c *Collectives) CompleteInstance(ctx context.Context, req *tfpb.CompleteInstanceRequest) (*tfpb.CompleteInstanceResponse, error) {
	m := c.groups.find(req.GetGroupKey())
	if m == nil {
		return nil, status.Errorf(status.FailedPrecondition, "group %d not found. This normally means the server has restarted", req.GetGroupKey())
	}
	shape, err := tensorproto.ShapeFromProto(req.GetShape())
	if err != nil {
		return nil, err
	}
	d, err := cluster.ParseDevice(req.GetDevice())
	if err != nil {
		return nil, err
	}
	rank := m.rank(d)
	if rank < 0 {
		return nil, status.Errorf(status.FailedPrecondition, "device %s is not a member of group %d", d, m.key)
	}
	dtype, err := tensorproto.DTypeFromProto(req.GetDataType())
	if err != nil {
		return nil, err
	}
	source, err := c.instance(ctx, m, req.GetName(), entry{
		from: transport.CallerOf(ctx).Share,
		key:  instanceKey{m.key, req.GetInstanceKey(), req.GetStepId()},
		what: operation{kind(req.GetType()), dtype, shape},
		rank: rank, isSource: req.GetIsSource(),
	})
	if err != nil {
		return nil, err
	}
	return &tfpb.CompleteInstanceResponse{InstanceKey: req.GetInstanceKey(), SourceRank: int32(source)}, nil //nolint:gosec // at most maxGroupSize
}

// instance confirms with the leader what an operation has in common with those of the other
// members, and returns the rank of the source of a broadcast.
func (c *Collectives) instance(ctx context.Context, m *members, name string, e entry) (source int, err error) {
	if c.leads() {
		return wait(ctx, func(done func(int, error)) func() { return c.instances.enter(m, e, done) })
	}
	if source, ok := c.instances.find(m, e.key, e.what); ok {
		return source, nil
	}
	resp, err := callLeader(ctx, c, c.opts.LeaderTimeout, func(ctx context.Context, w leader) (*tfpb.CompleteInstanceResponse, error) {
		return w.CompleteInstance(ctx, &tfpb.CompleteInstanceRequest{
			Name: name, Type: int32(e.what.kind), DataType: tensorproto.DTypeToProto(e.what.dtype), Shape: tensorproto.ShapeToProto(e.what.shape),
			GroupKey: m.key, GroupSize: int32(m.size()), InstanceKey: e.key.instance, DeviceType: m.deviceType, //nolint:gosec // at most maxGroupSize
			Device: m.list[e.rank].device.String(), IsSource: e.isSource, StepId: e.key.step,
		})
	})
	if status.CodeOf(err) == status.FailedPrecondition { // the leader has restarted
		c.groups.forget(m)
	}
	if err != nil {
		return -1, err
	}
	source = int(resp.GetSourceRank())
	if e.what.kind == broadcast && (source < 0 || source >= m.size()) {
		return -1, status.Errorf(status.Internal, "the leader %v says that rank %d of %d is the source of the broadcast", c.opts.Leader, source, m.size())
	}
	return source, c.instances.add(m, e.key, e.what, source)
}

// confirm is instance for a member that waits there: all members have to enter a broadcast. It ends
// when one of them has failed, or is silent.
func (s *Step) confirm(ctx context.Context, m *members, name, exec string, e entry) (source int, err error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	w := s.c.newWatcher(ctx, m, e.rank, s.id, exec+":enter", func(rank int, err error) {
		stop(status.From(err).WithPrefix(m.list[rank].device.Task.String()))
	})
	defer w.close()
	if e.what.kind == broadcast {
		for rank := range m.size() {
			if err := w.await(rank, toTake); err != nil {
				return -1, err
			}
		}
	}
	if source, err = s.c.instance(ctx, m, name, e); err != nil && ctx.Err() != nil {
		err = causeOf(ctx)
	}
	return source, err
}

// leader is what members call.
type leader interface {
	CompleteGroup(context.Context, *tfpb.CompleteGroupRequest) (*tfpb.CompleteGroupResponse, error)
	CompleteInstance(context.Context, *tfpb.CompleteInstanceRequest) (*tfpb.CompleteInstanceResponse, error)
}

// callLeader calls the leader, again while it is not reached: members may start before it. It gives
// up after patience, and when the leader gives no sign for Options.PeerTimeout; only when ctx ends if
// patience is 0.
func callLeader[Resp any](ctx context.Context, c *Collectives, patience time.Duration, call func(context.Context, leader) (Resp, error)) (resp Resp, err error) {
	w, err := c.opts.Workers.Worker(c.opts.Leader)
	if err != nil {
		return resp, status.From(err).WithPrefix("the leader of the collectives (setting collective-leader)")
	}
	var over <-chan time.Time
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	if patience > 0 {
		watch := c.newWatcher(ctx, nil, 0, 0, "", func(_ int, err error) { stop(err) })
		defer watch.close()
		if err := watch.await(leaderRank, toTake); err != nil {
			return resp, err
		}
		timer := time.NewTimer(patience)
		defer timer.Stop()
		over = timer.C
	}
	for {
		resp, err = call(ctx, w)
		if status.CodeOf(err) != status.Unavailable || ctx.Err() != nil {
			break
		}
		again := time.NewTimer(leaderRetry)
		select {
		case <-again.C:
			continue
		case <-ctx.Done():
		case <-over:
		}
		again.Stop()
		break
	}
	if err != nil {
		if ctx.Err() != nil {
			err = causeOf(ctx)
		}
		return resp, status.From(err).WithPrefix("the leader of the collectives, " + c.opts.Leader.String())
	}
	return resp, nil
}

// wait waits for the callback of start, or for the end of ctx.
func wait[T any](ctx context.Context, start func(done func(T, error)) (leave func())) (v T, err error) {
	type result struct {
		v   T
		err error
	}
	got := make(chan result, 1)
	leave := start(func(v T, err error) { got <- result{v, err} })
	select {
	case r := <-got:
		return r.v, r.err
	case <-ctx.Done():
		leave()
		return v, causeOf(ctx)
	}
}

// causeOf returns why a context has ended, as a status.
func causeOf(ctx context.Context) error {
	return status.From(context.Cause(ctx))
}
