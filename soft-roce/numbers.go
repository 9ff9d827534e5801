package softroce

import "time"

const (
	// pairMTU is the MTU of the interfaces of a pair, in bytes: it leaves the RoCE MTU at 4096, the most that RoCE has. (On 1500 bytes
	// it is 1024.)
	pairMTU = 9000

	// activePeriod is how often a port that comes up is looked at. The kernel fills the GID table from a work queue, which takes
	// milliseconds, hundreds of them on an emulated processor; sysfs tells nobody when it is done.
	activePeriod = 20 * time.Millisecond

	// nameMax and netdevMax are the bytes that a name may have: IB_DEVICE_NAME_MAX (rdma/rdma_user_ioctl_cmds.h) and IFNAMSIZ
	// (linux/if.h), each without its final zero.
	nameMax   = 63
	netdevMax = 15
)
