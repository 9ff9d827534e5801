package config

import "net"

// takeOwnAddress sets Listen to the address of Task in Cluster: the other tasks of the cluster
// dial it. Without such an address Listen stays. task is whether Task was set, and is not the default.
func (c *Config) takeOwnAddress(task bool) {
	address, ok := c.Cluster.Address(c.Task)
	if _, _, err := net.SplitHostPort(address); !ok || err != nil { // a name for a resolver of the site has no port
		return
	}
	c.Listen, c.ownAddress, c.ownTask = address, address, task
}

// ListensInCluster reports whether Listen is the address of Task in Cluster because no source set
// it. The address is the one that peers dial, which this host need not have: it may be that of a
// load balancer or of a host that forwards a port.
func (c *Config) ListensInCluster() bool {
	return c.ownAddress != "" && c.Listen == c.ownAddress
}

// TaskIsSet reports whether the Task with which ListensInCluster finds the address was set, and is
// not the default: otherwise nobody has said that this process is the server at that address.
func (c *Config) TaskIsSet() bool { return c.ownTask }
