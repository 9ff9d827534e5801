package rendezvous

import (
	"fmt"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/status"
)

// Session describes the process in which a step runs. It must not be changed
// once a rendezvous uses it.
type Session struct {
	// Task is the name of this process.
	Task cluster.Task
	// Devices holds the incarnation of each device of this process.
	Devices map[cluster.Device]uint64
	// Places has the tasks of the session's own cluster; nil for the cluster of the process.
	Places map[cluster.Task]cluster.Place
	// Copy copies values between the memories of this process's devices; nil
	// when all devices are CPUs.
	Copy CopyFunc
}

// NewSession returns the session of a process with n CPU devices; CPU:0 is always there. CPU:0 has the
// process's incarnation, the others have random ones.
func NewSession(task cluster.Task, incarnation uint64, n int) *Session {
	s := &Session{Task: task, Devices: map[cluster.Device]uint64{cluster.DeviceOf(task): incarnation}}
	for i := 1; i < n; i++ {
		d := cluster.DeviceOf(task)
		d.Index = i
		s.Devices[d] = cluster.NewIncarnation()
	}
	return s
}

// Incarnation returns the incarnation of a device of this process; false when
// there is no such device.
func (s *Session) Incarnation(d cluster.Device) (uint64, bool) {
	n, ok := s.Devices[d]
	return n, ok
}

// CheckSource checks a key that a peer requests. It returns InvalidArgument when
// the key's source device is not in this process; the text begins as TensorFlow's when
// TensorFlow would not find the device either. It returns Aborted, with the
// text and the payload of TensorFlow's worker, when the device has another
// incarnation, which means that this process was restarted.
func (s *Session) CheckSource(key Key) error {
	if _, ok := s.Incarnation(key.src); !ok && !key.SrcEmpty() {
		first, here := "", key.src
		here.Task = s.Task
		if _, ok := s.Incarnation(here); !ok {
			first = unknownDevice(here) + " "
		}
		return status.Errorf(status.InvalidArgument, "%sRecvTensor of %s: %v has no device %v", first, key.Describe(), s.Task, key.src)
	}
	return s.CheckSourceDevice(key)
}

// CheckSourceDevice is CheckSource for a request of TensorFlow's worker, with the rules and
// texts of TensorFlow: it does not compare the task of the source, only its device.
func (s *Session) CheckSourceDevice(key Key) error {
	if key.SrcEmpty() {
		return nil
	}
	here := key.src
	here.Task = s.Task
	n, ok := s.Incarnation(here)
	if !ok {
		return status.New(status.InvalidArgument, unknownDevice(here))
	}
	if n != key.incarnation {
		return status.Errorf(status.Aborted, "RecvTensor expects a different device incarnation: %d vs. %d. "+
			"Your worker job (%q) was probably restarted. Check your worker job for the reason why it was restarted.",
			key.incarnation, n, s.Task).WithPayload(status.PayloadPossiblyRestarted, nil)
	}
	return nil
}

// unknownDevice is TensorFlow's text for a device that a worker does not have.
func unknownDevice(d cluster.Device) string {
	return fmt.Sprintf("/device:%s:%d unknown device.", d.Type, d.Index)
}

// isSource compares names as parsed values, not as texts: /task:1 is a prefix of
// /task:10.
func (s *Session) isSource(key *Key) bool { return key.src.Task == s.Task || key.SrcEmpty() }

func (s *Session) isDestination(key *Key) bool { return key.dst.Task == s.Task }

// notSource is the error for a key whose source is not this task. For a caller here, key is the
// text of Key.Describe; for a peer it is the text of the key, as in TensorFlow.
func (s *Session) notSource(key string) error {
	return status.Errorf(status.InvalidArgument, "Invalid rendezvous key (src): %s @ %v", key, s.Task)
}

func (s *Session) notDestination(key string) error {
	return status.Errorf(status.InvalidArgument, "Invalid rendezvous key (dst): %s @ %v", describe(key), s.Task)
}
