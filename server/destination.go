package server

import (
	"strconv"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
)

// checkDestination returns NotFound for a device that no receiver of a value can have: it is not in
// the cluster, or its task has no such device. A process without a cluster knows its own devices only:
// any task may dial it.
//
// Send does not ask peers. A task that has answered a request for an incarnation has said which
// devices it has: CPU:0 alone if it is Tryst. Any device of another task is accepted, such as the
// GPU of a TensorFlow worker.
func (s *Server) checkDestination(method, name string, dst cluster.Device) error {
	members := s.members.Now()
	spec := members.Spec()
	_, listed := spec.Address(dst.Task)
	switch {
	case dst.Task == s.task:
		return s.ownDevice(method, name, s.Device(), dst, dst)
	case spec.Len() == 0:
		return nil
	case members.Left(dst.Task):
		return leftError(method, name, s.Device(), dst, dst.Task)
	case !listed:
		return status.Errorf(status.NotFound, "%s of %s: the cluster has no task %v", method, describe(name, s.Device(), dst), dst.Task)
	case dst != cluster.DeviceOf(dst.Task) && s.incarnations.Lacks(dst):
		return status.Errorf(status.NotFound, "%s of %s: as far as known here, %v has no device %v; a Step's Rendezvous takes a key for any device", method, describe(name, s.Device(), dst), dst.Task, dst)
	}
	return nil
}

// leftError is the error of a call that is about a task which has left the cluster.
func leftError(method, name string, src, dst cluster.Device, left cluster.Task) error {
	return status.Errorf(status.NotFound, "%s of %s: %v has left the cluster", method, describe(name, src, dst), left).WithKind(status.ErrTaskLeft)
}

// checkSource returns NotFound for a device of this task that does not exist, and for a task that has left the cluster.
// Peers are asked for theirs.
func (s *Server) checkSource(method, name string, src cluster.Device) error {
	switch {
	case src.Task == s.task:
	case s.members.Now().Left(src.Task):
		return leftError(method, name, src, s.Device(), src.Task)
	default:
		return nil
	}
	return s.ownDevice(method, name, src, s.Device(), src)
}

// ownDevice returns NotFound unless d, which is src or dst, is the device of this task.
func (s *Server) ownDevice(method, name string, src, dst, d cluster.Device) error {
	if d == s.Device() {
		return nil
	}
	return status.Errorf(status.NotFound, "%s of %s: this task, %v, has no device %v; its device is %v", method, describe(name, src, dst), s.task, d, s.Device())
}

// describe describes a value that has no key yet, as rendezvous.Key.Describe.
func describe(name string, src, dst cluster.Device) string {
	key, err := rendezvous.NewKey(src, 0, dst, name, rendezvous.FrameIter{})
	if err != nil { // the name is not valid, which Send and Recv report when they make the key
		return "edge " + strconv.Quote(name)
	}
	return key.Describe()
}
