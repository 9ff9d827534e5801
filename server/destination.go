package server

import (
	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/worker"
)

// checkDestination returns NotFound for a device that no receiver of a value can have: it is not in
// the cluster, or its task has no such device. A process without a cluster knows its own devices only:
// any task may dial it.
//
// Send does not ask peers. A device other than that of Tryst's tasks (CPU:0) must be one that a
// receive has found, as the GPU of a TensorFlow worker.
func (s *Server) checkDestination(name string, dst cluster.Device) error {
	_, listed := s.cfg.Cluster.Address(dst.Task)
	switch {
	case dst.Task == s.task:
		return s.ownDevice("Send", name, dst)
	case s.cfg.Cluster.Len() == 0:
		return nil
	case !listed:
		return status.Errorf(status.NotFound, "Send of %q: the cluster has no task %v", name, dst.Task)
	case dst != worker.Device(dst.Task) && !s.devices.found(dst):
		return status.Errorf(status.NotFound, "Send of %q: as far as known here, %v has no device %v; a Step's Rendezvous takes a key for any device", name, dst.Task, dst)
	}
	return nil
}

// checkSource returns NotFound for a device of this task that does not exist. Peers are asked for
// theirs.
func (s *Server) checkSource(name string, src cluster.Device) error {
	if src.Task != s.task {
		return nil
	}
	return s.ownDevice("Recv", name, src)
}

func (s *Server) ownDevice(method, name string, d cluster.Device) error {
	if d == s.Device() {
		return nil
	}
	return status.Errorf(status.NotFound, "%s of %q: this task, %v, has no device %v; its device is %v", method, name, s.task, d, s.Device())
}
