package server

import (
	"net"

	"github.com/tryst-rdma/tryst/cluster"
)

// hostIn returns a function that returns the host of a task's address in the cluster.
func hostIn(spec *cluster.Spec) func(cluster.Task) (host string, ok bool) {
	return func(task cluster.Task) (string, bool) {
		address, ok := spec.Address(task)
		if !ok {
			return "", false
		}
		host, _, err := net.SplitHostPort(address)
		return host, err == nil
	}
}
