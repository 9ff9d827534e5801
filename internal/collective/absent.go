package collective

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tryst-rdma/tryst/cluster"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/status"
)

// byCaller reports whether a call ended with err since its context was cancelled by its caller or has reached a deadline, and
// not by an error of the operation. The peer knows the deadline too, and may end the call a moment before.
func byCaller(ctx context.Context, err error) bool {
	why := context.Cause(ctx)
	if errors.Is(why, context.Canceled) || errors.Is(why, context.DeadlineExceeded) || status.CodeOf(why) == status.DeadlineExceeded {
		return true
	}
	_, ends := ctx.Deadline()
	return ends && why == nil && status.CodeOf(err) == status.DeadlineExceeded
}

// nameAbsent adds the absent members to the error of a call that has given up a group. Only the leader
// knows them; a leader that is a Tryst process answers at once. The error stays as it is if the leader does
// not answer, or if the last member has joined meanwhile.
func (c *Collectives) nameAbsent(ctx context.Context, r joinRequest, err error) error {
	if !byCaller(ctx, err) {
		return err
	}
	joined, known := c.askJoined(context.WithoutCancel(ctx), r)
	if !known || len(joined) >= r.size {
		return err
	}
	return status.From(err).WithPrefix(fmt.Sprintf("group %d is not complete: %s", r.key, describeAbsent(joined, r.size, c.opts.Workers.Tasks())))
}

// askJoined asks the leader which devices have joined a group; false if it does not say.
func (c *Collectives) askJoined(ctx context.Context, r joinRequest) ([]cluster.Device, bool) {
	attributes := c.groups.joined(r.key)
	if !c.leads() {
		ctx, stop := context.WithTimeout(ctx, askTimeout)
		defer stop()
		if tryst, err := c.opts.Tryst(ctx, c.opts.Leader); err != nil || !tryst {
			return nil, false
		}
		w, err := c.opts.Workers.Worker(c.opts.Leader)
		if err != nil {
			return nil, false
		}
		resp, err := w.CompleteGroup(ctx, &tfpb.CompleteGroupRequest{
			GroupKey: r.key, GroupSize: int32(r.size), DeviceType: r.deviceType, DeviceAttributes: r.device, OnlyAsk: true, //nolint:gosec // the leader has checked it
		})
		if err != nil {
			return nil, false
		}
		attributes = resp.GetDeviceAttributes()
	}
	var joined []cluster.Device
	for _, a := range attributes {
		if d, err := cluster.ParseDevice(a.GetName()); err == nil {
			joined = append(joined, d)
		}
	}
	slices.SortFunc(joined, compareDevices)
	return joined, true
}

// describeAbsent names the members that a group of size members lacks. They are known if the tasks of the
// cluster that have not joined are exactly as many as the members that are absent; otherwise it names
// those that have joined.
func describeAbsent(joined []cluster.Device, size int, tasks []cluster.Task) string {
	absent := slices.DeleteFunc(slices.Clone(tasks), func(t cluster.Task) bool {
		return slices.ContainsFunc(joined, func(d cluster.Device) bool { return d.Task == t }) ||
			len(joined) > 0 && !slices.ContainsFunc(joined, func(d cluster.Device) bool { return d.Task.Job == t.Job })
	})
	slices.SortFunc(absent, func(a, b cluster.Task) int {
		return cmp.Or(cmp.Compare(a.Job, b.Job), cmp.Compare(a.Replica, b.Replica), cmp.Compare(a.Index, b.Index))
	})
	if n := size - len(joined); len(absent) == n {
		return fmt.Sprintf("%d of %d members have joined, not %s", len(joined), size, list(absent))
	}
	if len(joined) == 0 {
		return fmt.Sprintf("none of %d members has joined", size)
	}
	return fmt.Sprintf("%d of %d members have joined: %s", len(joined), size, list(joined))
}

// list writes at most maxNamed names.
func list[T fmt.Stringer](all []T) string {
	var names []string
	for _, v := range all[:min(len(all), maxNamed)] {
		names = append(names, v.String())
	}
	if more := len(all) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, ", ")
}
