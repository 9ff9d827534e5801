// Package softroce adds and removes Soft-RoCE devices: RDMA devices of the kernel's driver
// rdma_rxe, which implement RoCEv2 in software on a network interface. It uses netlink, and
// needs CAP_NET_ADMIN and a kernel with the driver. Package soft-roce/internal/vm boots such a kernel in a
// VM.
//
//	netdev  v0 ──────veth────── v1        frames really travel, so tc and ip act on them
//	        │                    │
//	rdma    rxe0               rxe1       type rxe, one port each
//
// The kernel blocks the removal of a device until every process has closed it. So a process must
// not remove the link of a device that it has open (ARCHITECTURE.md section 6).
package softroce
