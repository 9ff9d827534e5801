package grpctransport

import (
	"context"

	"github.com/tryst-rdma/tryst/cluster"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/status"
)

// Addressed reports whether name is the name of a task with an address.
func (c *Conns) Addressed(name string) bool {
	task, err := cluster.ParseTask(name)
	if err != nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.addressLocked(task)
	return ok
}

// Incarnation calls the address of a task and returns the incarnation of the process there.
// It waits for the response until ctx ends. The call is TensorFlow's GetStatus, which has no
// requester to verify: two processes that verify each other do not wait for each other.
func (c *Conns) Incarnation(ctx context.Context, name string) (uint64, error) {
	task, err := cluster.ParseTask(name)
	if err != nil {
		return 0, err
	}
	w, err := c.Worker(task)
	if err != nil {
		return 0, err
	}
	resp, err := w.GetStatus(ctx, &tfpb.GetStatusRequest{})
	if err != nil {
		return 0, err
	}
	for _, d := range resp.GetDeviceAttributes() {
		if device, err := cluster.ParseDevice(d.GetName()); err == nil && device.Task == task {
			return d.GetIncarnation(), nil
		}
	}
	return 0, status.Errorf(status.NotFound, "the process at the address of %v has no device of that task", task)
}
