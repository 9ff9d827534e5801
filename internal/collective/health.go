package collective

import (
	"context"

	"github.com/tryst-rdma/tryst/cluster"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/status"
)

// CheckPeerHealth reports whether a task is reached and is the process that the groups know. A task
// that is not reached is Unavailable; one whose devices have other incarnations, or are others, than
// those in a group is FailedPrecondition: it has restarted.
func (c *Collectives) CheckPeerHealth(ctx context.Context, task cluster.Task) error {
	if task == c.opts.Task {
		return nil
	}
	return c.checkHealth(ctx, task, c.groups.attributes(task))
}

// checkHealth is CheckPeerHealth for devices that a task has in a group.
func (c *Collectives) checkHealth(ctx context.Context, task cluster.Task, known []*tfpb.DeviceAttributes) error {
	w, err := c.opts.Workers.Worker(task)
	if err != nil {
		return err
	}
	resp, err := w.GetStatus(ctx, &tfpb.GetStatusRequest{})
	if err != nil {
		return status.From(err).WithPrefix("check of " + task.String())
	}
	present := make(map[string]uint64)
	for _, a := range resp.GetDeviceAttributes() {
		present[a.GetName()] = a.GetIncarnation()
	}
	for _, a := range known {
		switch n, ok := present[a.GetName()]; {
		case !ok:
			return status.Errorf(status.FailedPrecondition, "%s has no device %s any more, which is in a group: it has restarted with other devices", task, a.GetName())
		case n != a.GetIncarnation():
			return status.Errorf(status.FailedPrecondition, "the device %s has another incarnation than in its group: its worker has restarted", a.GetName())
		}
	}
	return nil
}
