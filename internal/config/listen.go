package config

import "net"

// takeOwnAddress sets Listen to the address of Task in Cluster: the other tasks of the cluster
// dial it. Without such an address Listen stays.
func (c *Config) takeOwnAddress() {
	address, ok := c.Cluster.Address(c.Task)
	if _, _, err := net.SplitHostPort(address); !ok || err != nil { // a name for a resolver of the site has no port
		return
	}
	c.Listen, c.ownAddress = address, address
}

// ListensInCluster reports whether Listen is the address of Task in Cluster because no source set
// it. The address is the one that peers dial, which this host need not have: it may be that of a
// load balancer or of a host that forwards a port.
func (c *Config) ListensInCluster() bool {
	return c.ownAddress != "" && c.Listen == c.ownAddress
}
