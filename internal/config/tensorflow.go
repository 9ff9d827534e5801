package config

// inheritedNames are the variables of TensorFlow's verbs extension. Its README and its code
// use different names for most of them, so it ignored variables that users set by the README.
// Both names are valid here, and the source of a value has the name that was set.
var inheritedNames = []struct {
	key    string
	readme string
	code   string // "" if it is the same
}{
	{"rdma.device", "RDMA_DEVICE", ""},
	{"rdma.port", "RDMA_DEVICE_PORT", ""},
	{"rdma.gid-index", "RDMA_GID_INDEX", ""},
	{"rdma.pkey-index", "RDMA_QP_PKEY_INDEX", "RDMA_PKEY"},
	{"rdma.queue-depth", "RDMA_QP_QUEUE_DEPTH", "RDMA_QUEUE_DEPTH"},
	{"rdma.timeout", "RDMA_QP_TIMEOUT", "RDMA_TIMEOUT"},
	{"rdma.retry", "RDMA_QP_RETRY_COUNT", "RDMA_RETRY_CNT"},
	{"rdma.service-level", "RDMA_QP_SL", "RDMA_SL"},
	{"rdma.mtu", "RDMA_QP_MTU", "RDMA_MTU"},
	{"rdma.traffic-class", "RDMA_TRAFFIC_CLASS", ""},
}

// Inherited returns the variables of TensorFlow's verbs extension that set the setting, the one
// in its README first; nil if there are none.
func (s Setting) Inherited() []string {
	for _, n := range inheritedNames {
		switch {
		case n.key != s.Key:
		case n.code == "":
			return []string{n.readme}
		default:
			return []string{n.readme, n.code}
		}
	}
	return nil
}

// IsInherited reports whether a variable is one of TensorFlow's verbs extension.
func IsInherited(name string) bool {
	for _, n := range inheritedNames {
		if name == n.readme || name == n.code {
			return true
		}
	}
	return false
}
