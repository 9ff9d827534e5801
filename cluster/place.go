package cluster

import "net"

// Place is the process that a task name means. A session may have a cluster of its own, whose names
// are not those of the process's cluster.
type Place struct {
	// Task is the name of the process in the cluster of this process. If that has no such address,
	// it is the name in the cluster of the session, and Elsewhere is set.
	Task Task
	// Host is the host of its address; empty without one.
	Host      string
	Elsewhere bool
}

// Place returns the place of a task; one without a host if the spec does not have the task.
func (s *Spec) Place(t Task) Place {
	address, _ := s.Address(t)
	host, _, _ := net.SplitHostPort(address) // the address was checked: without a port there is none
	return Place{Task: t, Host: host}
}
