package softroce

import "time"

const (
	// pairMTU is the MTU of the interfaces of a pair, in bytes. It permits a RoCE MTU of 4096, the
	// largest; an MTU of 1500 permits only 1024.
	pairMTU = 9000

	// activePeriod is the interval at which WaitActive polls. The kernel fills the GID table from
	// a work queue, which takes milliseconds, or hundreds of them on an emulated processor; sysfs
	// does not notify.
	activePeriod = 20 * time.Millisecond

	// nameMax and netdevMax are the longest names in bytes: IB_DEVICE_NAME_MAX
	// (rdma/rdma_user_ioctl_cmds.h) and IFNAMSIZ (linux/if.h), each without the final zero.
	nameMax   = 63
	netdevMax = 15
)
